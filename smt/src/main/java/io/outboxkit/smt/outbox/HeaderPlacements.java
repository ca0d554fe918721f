package io.outboxkit.smt.outbox;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.config.ConfigException;

/**
 * Columns that are added as headers. The entries have the syntax of EventRouter: {@code
 * column:header} or {@code column:header:name}.
 *
 * @param lenient whether the table may lack a column
 */
public record HeaderPlacements(List<Entry> entries, boolean lenient) {
  public record Entry(String column, String header) {}

  public static final String SYNTAX = "list of column:header or column:header:name";
  private static final Pattern ENTRY =
      Pattern.compile("\\s*([^:\\s][^:]*):([^:]+?)(?::\\s*([^:\\s][^:]*))?");

  /** Throw ConfigException if an entry is not valid, or if a header is reserved or repeated. */
  public static HeaderPlacements parse(String option, List<String> texts, boolean lenient) {
    List<Entry> entries = new ArrayList<>();
    Set<String> headers = new HashSet<>();
    for (String text : texts) {
      Entry entry = parseEntry(option, text);
      if (RecordHeaders.isReserved(entry.header())) {
        throw new ConfigException(
            option,
            text,
            entry.header()
                + " is reserved (docs/contract.md); remove the entry or set a different header"
                + " name");
      }
      if (!headers.add(entry.header())) {
        throw new ConfigException(option, texts, "duplicate header " + entry.header());
      }
      entries.add(entry);
    }
    return new HeaderPlacements(List.copyOf(entries), lenient);
  }

  private static Entry parseEntry(String option, String text) {
    Matcher matcher = ENTRY.matcher(text);
    if (!matcher.matches()) {
      throw new ConfigException(option, text, "must be a " + SYNTAX);
    }
    String placement = matcher.group(2).trim();
    if (!placement.equals("header")) {
      throw new ConfigException(option, text, remedy(placement));
    }
    String column = matcher.group(1).trim();
    return new Entry(column, matcher.group(3) == null ? column : matcher.group(3).trim());
  }

  private static String remedy(String placement) {
    return switch (placement) {
      case "envelope" ->
          "the record value is the payload only; add the column to the payload, or use header";
      case "partition" -> "set aggregate.T.partition.field to the column instead";
      default -> "the placement must be header";
    };
  }
}
