package io.outboxkit.smt.outbox;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;

/**
 * Columns that become headers, in EventRouter's syntax: {@code column:header} or {@code
 * column:header:name}.
 *
 * @param entries in the order of the option
 * @param lenient whether a table may be without the columns
 */
record Placements(List<Entry> entries, boolean lenient) {

  /** One column and the name of its header. */
  record Entry(String column, String header) {}

  private static final String HEADER = "header";

  static Placements of(String option, List<String> texts, boolean lenient) {
    List<Entry> entries = new ArrayList<>();
    Set<String> headers = new HashSet<>();
    for (String text : texts) {
      Entry entry = entry(option, text);
      if (RecordHeaders.RESERVED.contains(entry.header())) {
        throw new ConfigException(
            option,
            text,
            entry.header()
                + " is a header of the contract; leave the column out, or choose another name");
      }
      if (!headers.add(entry.header())) {
        throw new ConfigException(
            option, texts, "must name each header once; " + entry.header() + " is there twice");
      }
      entries.add(entry);
    }
    return new Placements(List.copyOf(entries), lenient);
  }

  private static Entry entry(String option, String text) {
    String[] parts = text.split(":", -1);
    boolean complete = parts.length == 2 || parts.length == 3;
    for (String part : parts) {
      complete &= !part.isBlank();
    }
    if (!complete) {
      throw new ConfigException(
          option, text, "must be column:header or column:header:name of the header");
    }
    String placement = parts[1].trim();
    if (!placement.equals(HEADER)) {
      throw new ConfigException(option, text, instead(placement));
    }
    return new Entry(parts[0].trim(), parts[parts.length == 2 ? 0 : 2].trim());
  }

  private static String instead(String placement) {
    return switch (placement) {
      case "envelope" ->
          "the value is the payload alone; put the column into the payload, or use header";
      case "partition" ->
          "set aggregate.T.partition.field to the column instead, whose hash picks the partition";
      default -> "the placement must be header";
    };
  }

  /** Tells of mistakes already when Connect validates a connector's config. */
  static final class Validator implements ConfigDef.Validator {
    @Override
    public void ensureValid(String name, Object value) {
      List<String> texts = new ArrayList<>();
      for (Object text : value == null ? List.of() : (List<?>) value) {
        texts.add((String) text);
      }
      of(name, texts, false);
    }

    @Override
    public String toString() {
      return "a list of column:header or column:header:name";
    }
  }
}
