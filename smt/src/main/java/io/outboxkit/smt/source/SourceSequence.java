package io.outboxkit.smt.source;

import java.nio.charset.StandardCharsets;
import org.apache.kafka.connect.errors.DataException;

/**
 * Formats the header source_sequence, which consists of source epoch, LSN of the last commit and
 * LSN of the event in hexadecimal, such as {@code 0001_0000000002ba5d10-0000000002ba5d48}. The
 * values sort in WAL order. The separator is not a colon, because Connect's SimpleHeaderConverter
 * parses digits before a colon as a number.
 */
final class SourceSequence {
  static final int LENGTH = 38;

  private static final byte[] HEX_DIGITS = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);

  /** Number of digits of 2^63 - 1. A larger number of this length overflows to a negative value. */
  private static final int MAX_DIGITS = 19;

  private SourceSequence() {}

  /**
   * @param sourceSequence Debezium's source.sequence with the LSNs of the last commit and the
   *     event, such as {@code [null,"188902120"]}, or null if the source lacks it
   * @param lsn Debezium's source.lsn, used if source.sequence does not contain the event's LSN
   * @throws DataException if source.sequence has a different format
   */
  static String format(int epoch, String sourceSequence, Long lsn) {
    long commitLsn = 0;
    long eventLsn = lsn == null ? 0 : lsn;
    if (sourceSequence != null) {
      int comma = sourceSequence.indexOf(',');
      int lastIndex = sourceSequence.length() - 1;
      if (comma < 0 || sourceSequence.charAt(0) != '[' || sourceSequence.charAt(lastIndex) != ']') {
        throw unknownFormatError();
      }
      commitLsn = parseLsn(sourceSequence, 1, comma, 0);
      eventLsn = parseLsn(sourceSequence, comma + 1, lastIndex, eventLsn);
    }
    byte[] text = new byte[LENGTH];
    writeHex(epoch, text, 0, 4);
    text[4] = '_';
    writeHex(commitLsn, text, 5, 16);
    text[21] = '-';
    writeHex(eventLsn, text, 22, 16);
    return new String(text, StandardCharsets.ISO_8859_1);
  }

  /** Parse a quoted number in [from, to), or return {@code defaultLsn} for {@code null}. */
  private static long parseLsn(String text, int from, int to, long defaultLsn) {
    int start = from;
    int end = to;
    while (start < end && text.charAt(start) == ' ') {
      start++;
    }
    while (end > start && text.charAt(end - 1) == ' ') {
      end--;
    }
    if (end - start == 4 && text.startsWith("null", start)) {
      return defaultLsn;
    }
    if (end - start < 3 || text.charAt(start) != '"' || text.charAt(end - 1) != '"') {
      throw unknownFormatError();
    }
    return parseNumber(text, start + 1, end - 1);
  }

  /** Parse digits. Long.parseLong is not used, because it would take twice the CPU time. */
  private static long parseNumber(String text, int from, int to) {
    if (to - from > MAX_DIGITS) {
      throw unknownFormatError();
    }
    long value = 0;
    for (int i = from; i < to; i++) {
      int digit = text.charAt(i) - '0';
      if (digit < 0 || digit > 9) {
        throw unknownFormatError();
      }
      value = 10 * value + digit;
    }
    if (value < 0) {
      throw unknownFormatError();
    }
    return value;
  }

  private static void writeHex(long value, byte[] target, int offset, int digits) {
    long remainingBits = value;
    for (int i = offset + digits - 1; i >= offset; i--) {
      target[i] = HEX_DIGITS[(int) (remainingBits & 0xF)];
      remainingBits >>>= 4;
    }
  }

  private static DataException unknownFormatError() {
    return new DataException(
        "source.sequence is not [\"<last commit LSN>\",\"<LSN>\"], the format of Debezium's"
            + " PostgreSQL connector");
  }
}
