package io.outboxkit.smt.config;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;

/** Parser of lists of {@code name:value} entries. Names can contain colons; values cannot. */
public final class NamedValues {
  private NamedValues() {}

  /** Map names to values, in list order. Throw ConfigException if the list is not valid. */
  public static Map<String, String> parse(String option, List<String> entries) {
    Map<String, String> values = new LinkedHashMap<>();
    for (String entry : entries) {
      int colon = entry.lastIndexOf(':');
      if (colon <= 0 || colon == entry.length() - 1) {
        throw new ConfigException(
            option, entries, "each entry must have a colon, and text before and after the colon");
      }
      String name = entry.substring(0, colon).trim();
      if (values.put(name, entry.substring(colon + 1).trim()) != null) {
        throw new ConfigException(option, entries, "duplicate entry for " + name);
      }
    }
    return values;
  }

  /**
   * Return a validator of lists of {@code name:value} entries.
   *
   * @param syntax syntax of an entry for the option's documentation, such as {@code TOPIC:COUNT}
   */
  public static ConfigDef.Validator validator(String syntax) {
    return Validators.optional(
        "list of " + syntax, (name, value) -> parse(name, Validators.strings(value)));
  }
}
