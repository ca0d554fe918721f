package io.outboxkit.smt.outbox;

import java.nio.charset.StandardCharsets;
import org.apache.kafka.connect.errors.DataException;

/**
 * A place in the source's history, as text that sorts like the history: {@code
 * 0001_0000000002ba5d10-0000000002ba5d48}, 38 characters: source epoch, position of the last commit
 * before, position of the event. Not all digits and no colon: Connect's SimpleHeaderConverter reads
 * digits, also those in front of a colon, as a number. The underscore sorts behind the colon.
 */
final class SourceSequence {
  static final int LENGTH = 38;

  private static final byte[] HEX = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);

  /** Of 2^63 - 1. What exceeds it with so many digits turns negative. */
  private static final int MAX_DIGITS = 19;

  private SourceSequence() {}

  /**
   * @param epoch source epoch, 0 to 65535
   * @param debezium Debezium's source.sequence: {@code [null,"188902120"]} or {@code ["1","2"]},
   *     last commit and event LSN; null if the source has none
   * @param lsn Debezium's source.lsn, for a missing event LSN; null if the source has none
   * @throws DataException if source.sequence has another form
   */
  static String format(int epoch, String debezium, Long lsn) {
    long commit = 0;
    long event = lsn == null ? 0 : lsn;
    if (debezium != null) {
      int comma = debezium.indexOf(',');
      int last = debezium.length() - 1;
      if (comma < 0 || debezium.charAt(0) != '[' || debezium.charAt(last) != ']') {
        throw unknownForm();
      }
      commit = part(debezium, 1, comma, 0);
      event = part(debezium, comma + 1, last, event);
    }
    byte[] text = new byte[LENGTH];
    hex(epoch, text, 0, 4);
    text[4] = '_';
    hex(commit, text, 5, 16);
    text[21] = '-';
    hex(event, text, 22, 16);
    return new String(text, StandardCharsets.ISO_8859_1);
  }

  /** Reads {@code null} or a quoted number between the two indexes. */
  private static long part(String text, int from, int to, long missing) {
    int start = from;
    int end = to;
    while (start < end && text.charAt(start) == ' ') {
      start++;
    }
    while (end > start && text.charAt(end - 1) == ' ') {
      end--;
    }
    if (end - start == 4 && text.startsWith("null", start)) {
      return missing;
    }
    if (end - start < 3 || text.charAt(start) != '"' || text.charAt(end - 1) != '"') {
      throw unknownForm();
    }
    return number(text, start + 1, end - 1);
  }

  /** Long.parseLong of the part, at half its cost. */
  private static long number(String text, int from, int to) {
    if (to - from > MAX_DIGITS) {
      throw unknownForm();
    }
    long value = 0;
    for (int i = from; i < to; i++) {
      int digit = text.charAt(i) - '0';
      if (digit < 0 || digit > 9) {
        throw unknownForm();
      }
      value = 10 * value + digit;
    }
    if (value < 0) {
      throw unknownForm();
    }
    return value;
  }

  private static void hex(long value, byte[] target, int offset, int digits) {
    long rest = value;
    for (int i = offset + digits - 1; i >= offset; i--) {
      target[i] = HEX[(int) (rest & 0xF)];
      rest >>>= 4;
    }
  }

  private static DataException unknownForm() {
    return new DataException(
        "source.sequence is not of the form [\"<last commit LSN>\",\"<LSN>\"] that Debezium's"
            + " PostgreSQL connector writes; is this another connector?");
  }
}
