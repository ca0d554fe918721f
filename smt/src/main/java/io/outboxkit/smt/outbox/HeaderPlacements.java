package io.outboxkit.smt.outbox;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.config.ConfigException;

/**
 * Columns whose values are added as headers. The entries have the syntax of EventRouter: {@code
 * COLUMN:header} or {@code COLUMN:header:NAME}.
 *
 * @param ignoresMissing whether columns that do not exist are ignored
 */
public record HeaderPlacements(List<Entry> entries, boolean ignoresMissing) {
  public record Entry(String column, String header) {}

  public static final String ENTRY_SYNTAX = "COLUMN:header or COLUMN:header:NAME";
  private static final Pattern ENTRY_PATTERN =
      Pattern.compile("\\s*([^:\\s][^:]*):([^:]+?)(?::\\s*([^:\\s][^:]*))?");

  /**
   * @param texts entries of the option, or null if the option is not set
   * @throws ConfigException if an entry is not valid, if a header is reserved or repeated, or if
   *     the option is set to an empty list, which EventRouter also rejects
   */
  public static HeaderPlacements parse(String option, List<String> texts, boolean ignoresMissing) {
    if (texts == null) {
      return new HeaderPlacements(List.of(), ignoresMissing);
    }
    if (texts.isEmpty()) {
      throw new ConfigException(option, texts, "must be a list of " + ENTRY_SYNTAX + ", or unset");
    }
    List<Entry> entries = new ArrayList<>();
    Set<String> headers = new HashSet<>();
    for (String text : texts) {
      Entry entry = parseEntry(option, text);
      if (RecordHeaders.isReserved(entry.header())) {
        throw new ConfigException(
            option,
            text,
            entry.header()
                + " is reserved (docs/contract.md); remove the entry or use COLUMN:header:NAME");
      }
      if (!headers.add(entry.header())) {
        throw new ConfigException(option, texts, "duplicate header " + entry.header());
      }
      entries.add(entry);
    }
    return new HeaderPlacements(List.copyOf(entries), ignoresMissing);
  }

  private static Entry parseEntry(String option, String text) {
    Matcher matcher = ENTRY_PATTERN.matcher(text);
    if (!matcher.matches()) {
      throw new ConfigException(option, text, "must be " + ENTRY_SYNTAX);
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
          "the record value is the payload; add the column's value to it, or use COLUMN:header";
      case "partition" -> "set aggregate.T.partition.field to the column instead";
      default -> "the placement must be header: " + ENTRY_SYNTAX;
    };
  }
}
