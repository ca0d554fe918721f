package io.outboxkit.smt.field;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;

/**
 * Options that are lists of {@code name:value}. The last colon divides: topics and counts have
 * none, the names before them may.
 */
public final class NamedValues {
  private NamedValues() {}

  /**
   * @return values by name, in order
   * @throws ConfigException if an entry is not {@code name:value}, or a name is there twice
   */
  public static Map<String, String> parse(String option, List<String> entries) {
    Map<String, String> values = new LinkedHashMap<>();
    for (String entry : entries) {
      int colon = entry.lastIndexOf(':');
      if (colon <= 0 || colon == entry.length() - 1) {
        throw new ConfigException(option, entries, "must be a list of name:value");
      }
      String name = entry.substring(0, colon).trim();
      if (values.put(name, entry.substring(colon + 1).trim()) != null) {
        throw new ConfigException(option, entries, "must name " + name + " once");
      }
    }
    return values;
  }

  /** Refuses what {@link #parse} refuses. */
  public static final class Validator implements ConfigDef.Validator {
    private final String shown;

    /**
     * @param shown how the documentation writes an entry: {@code topic:count}
     */
    public Validator(String shown) {
      this.shown = shown;
    }

    @Override
    public void ensureValid(String name, Object value) {
      if (value != null) {
        parse(name, ((List<?>) value).stream().map(String.class::cast).toList());
      }
    }

    @Override
    public String toString() {
      return "a list of " + shown;
    }
  }
}
