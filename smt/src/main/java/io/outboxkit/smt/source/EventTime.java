package io.outboxkit.smt.source;

import io.outboxkit.smt.util.IsoDateTimeParser;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.Set;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Timestamp;

/**
 * Formats the header event_time as UTC with six fraction digits, such as {@code
 * 2026-11-20T18:31:38.123456Z}, so that the values sort by time. Not thread-safe.
 */
final class EventTime {
  private static final String MILLIS = "io.debezium.time.Timestamp";
  private static final String MICROS = "io.debezium.time.MicroTimestamp";
  private static final String NANOS = "io.debezium.time.NanoTimestamp";

  /** Schema names of timestamptz and timestamp in all values of time.precision.mode. */
  private static final Set<String> SCHEMA_NAMES =
      Set.of(
          "io.debezium.time.ZonedTimestamp",
          "io.debezium.time.IsoTimestamp",
          MILLIS,
          MICROS,
          NANOS,
          Timestamp.LOGICAL_NAME);

  private static final int LENGTH = 27;
  private static final long MAX_SECOND =
      LocalDateTime.of(9999, 12, 31, 23, 59, 59).toEpochSecond(ZoneOffset.UTC);
  private static final long MIN_SECOND =
      LocalDateTime.of(0, 1, 1, 0, 0, 0).toEpochSecond(ZoneOffset.UTC);

  private final IsoDateTimeParser isoParser = new IsoDateTimeParser();

  /** Return whether a column with this schema has the type timestamptz or timestamp. */
  static boolean isTimestamp(Schema schema) {
    return schema.name() != null && SCHEMA_NAMES.contains(schema.name());
  }

  /**
   * @param value Debezium's value: ISO-8601 text with a UTC offset (timestamptz), or ticks since
   *     1970-01-01 in UTC (timestamp)
   * @param schemaName name of the column's schema, which determines the resolution of the ticks
   * @return the header's value, or null if the time is invalid or outside the years 0 to 9999
   */
  String format(Object value, String schemaName) {
    if (value instanceof String text) {
      if (!isoParser.parseTimestamp(text)) {
        return null;
      }
      return hasHeaderFormat(text) ? text : format(isoParser.epochSecond(), isoParser.nano());
    }
    if (value instanceof java.util.Date date) {
      return format(date.toInstant());
    }
    return value instanceof Long ticks && schemaName != null
        ? formatTicks(ticks, schemaName)
        : null;
  }

  /** Return whether a valid timestamp already has the header's format, which is usually true. */
  private static boolean hasHeaderFormat(String text) {
    return text.length() == LENGTH && text.charAt(10) == 'T' && text.charAt(LENGTH - 1) == 'Z';
  }

  private static String formatTicks(long ticks, String schemaName) {
    return switch (schemaName) {
      case MILLIS -> format(Instant.ofEpochMilli(ticks));
      case MICROS -> format(Instant.EPOCH.plus(ticks, ChronoUnit.MICROS));
      case NANOS -> format(Instant.EPOCH.plusNanos(ticks));
      default -> null;
    };
  }

  private static String format(Instant instant) {
    return format(instant.getEpochSecond(), instant.getNano());
  }

  private static String format(long epochSecond, int nano) {
    if (epochSecond < MIN_SECOND || epochSecond > MAX_SECOND) {
      return null;
    }
    LocalDateTime time = LocalDateTime.ofEpochSecond(epochSecond, nano, ZoneOffset.UTC);
    char[] text = new char[LENGTH];
    writeDigits(time.getYear(), text, 0, 4);
    text[4] = '-';
    writeDigits(time.getMonthValue(), text, 5, 2);
    text[7] = '-';
    writeDigits(time.getDayOfMonth(), text, 8, 2);
    text[10] = 'T';
    writeDigits(time.getHour(), text, 11, 2);
    text[13] = ':';
    writeDigits(time.getMinute(), text, 14, 2);
    text[16] = ':';
    writeDigits(time.getSecond(), text, 17, 2);
    text[19] = '.';
    writeDigits(nano / 1000, text, 20, 6);
    text[26] = 'Z';
    return new String(text);
  }

  private static void writeDigits(int value, char[] target, int offset, int count) {
    int remainingValue = value;
    for (int i = offset + count - 1; i >= offset; i--) {
      target[i] = (char) ('0' + remainingValue % 10);
      remainingValue /= 10;
    }
  }
}
