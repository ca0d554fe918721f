package io.outboxkit.smt.outbox;

import io.outboxkit.smt.util.IsoText;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;

/**
 * The header event_time: UTC with six fraction digits, {@code 2026-11-20T18:31:38.123456Z}. Always
 * 27 characters, so that it sorts as text. Not thread-safe.
 */
final class EventTime {
  private static final int LENGTH = 27;
  private static final long MAX_SECOND =
      LocalDateTime.of(9999, 12, 31, 23, 59, 59).toEpochSecond(ZoneOffset.UTC);
  private static final long MIN_SECOND =
      LocalDateTime.of(0, 1, 1, 0, 0, 0).toEpochSecond(ZoneOffset.UTC);

  private final IsoText iso = new IsoText();

  /**
   * @param value what Debezium has for the column: ISO-8601 text with an offset (timestamptz), or
   *     ticks since 1970 in UTC (timestamp)
   * @param semantics name of the column's schema, which says what the ticks are
   * @return null if the value is none of these, or outside the years 0 to 9999
   */
  String format(Object value, String semantics) {
    if (value instanceof String text) {
      if (!iso.timestamp(text)) {
        return null;
      }
      return isNormal(text) ? text : format(iso.epochSecond(), iso.nano());
    }
    if (value instanceof java.util.Date date) {
      return format(date.toInstant());
    }
    return value instanceof Long ticks && semantics != null ? ofTicks(ticks, semantics) : null;
  }

  /** Of a text that is a timestamp: whether it is in our form already. Most are. */
  private static boolean isNormal(String text) {
    return text.length() == LENGTH && text.charAt(10) == 'T' && text.charAt(LENGTH - 1) == 'Z';
  }

  private static String ofTicks(long ticks, String semantics) {
    return switch (semantics) {
      case "io.debezium.time.Timestamp" -> format(Instant.ofEpochMilli(ticks));
      case "io.debezium.time.MicroTimestamp" ->
          format(Instant.EPOCH.plus(ticks, ChronoUnit.MICROS));
      case "io.debezium.time.NanoTimestamp" -> format(Instant.EPOCH.plusNanos(ticks));
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
    digits(time.getYear(), text, 0, 4);
    text[4] = '-';
    digits(time.getMonthValue(), text, 5, 2);
    text[7] = '-';
    digits(time.getDayOfMonth(), text, 8, 2);
    text[10] = 'T';
    digits(time.getHour(), text, 11, 2);
    text[13] = ':';
    digits(time.getMinute(), text, 14, 2);
    text[16] = ':';
    digits(time.getSecond(), text, 17, 2);
    text[19] = '.';
    digits(nano / 1000, text, 20, 6);
    text[26] = 'Z';
    return new String(text);
  }

  private static void digits(int value, char[] target, int offset, int count) {
    int rest = value;
    for (int i = offset + count - 1; i >= offset; i--) {
      target[i] = (char) ('0' + rest % 10);
      rest /= 10;
    }
  }
}
