package io.outboxkit.smt.util;

import java.time.DateTimeException;
import java.time.LocalDate;

/**
 * Parser of dates, times and timestamps in the ISO-8601 forms that PostgreSQL, Debezium and JSON
 * libraries write: {@code 2026-11-20}, {@code 18:31:38.123456}, {@code
 * 2026-11-20T18:31:38.123456+00:00}. Also accepts the offsets {@code Z}, {@code +00} and {@code
 * +0530} and a space instead of the T; rejects infinity, years BC, 24:00 and leap seconds. Replaces
 * DateTimeFormatter, which would dominate the cost of a record. Not thread-safe.
 */
public final class IsoDateTimeParser {
  private static final int SECONDS_PER_DAY = 86_400;

  /** Longer than the longest valid text, {@code 999999-12-31T23:59:59.999999999+18:00}. */
  private static final int MAX_LENGTH = 48;

  /** Terminated by U+0000, which is neither a digit nor a separator. */
  private final char[] text = new char[MAX_LENGTH + 1];

  private int length;
  private int at;
  private long epochSecond;
  private int nano;

  /** Seconds since 1970-01-01T00:00:00, or since midnight after {@link #parseTime}. */
  public long epochSecond() {
    return epochSecond;
  }

  /** Days since 1970-01-01. */
  public long epochDay() {
    return Math.floorDiv(epochSecond, (long) SECONDS_PER_DAY);
  }

  /** Nanoseconds of the second. */
  public int nano() {
    return nano;
  }

  /** Parse {@code YYYY-MM-DD}. */
  public boolean parseDate(char[] value, int offset, int count) {
    start(value, offset, count);
    return readDate() && atEnd();
  }

  /** Parse {@code HH:MM:SS[.f]}. */
  public boolean parseTime(char[] value, int offset, int count) {
    start(value, offset, count);
    return readTime() && atEnd();
  }

  /** Parse a date and a time without offset. */
  public boolean parseLocalTimestamp(char[] value, int offset, int count) {
    start(value, offset, count);
    return readDate() && separator() && readTime() && atEnd();
  }

  /** Parse a date, a time and an offset. */
  public boolean parseTimestamp(char[] value, int offset, int count) {
    start(value, offset, count);
    return readTimestamp();
  }

  /** As {@link #parseTimestamp(char[], int, int)}. */
  public boolean parseTimestamp(String value) {
    length = value.length();
    int copied = Math.min(length, MAX_LENGTH);
    value.getChars(0, copied, text, 0);
    restart(copied);
    return readTimestamp();
  }

  private boolean readTimestamp() {
    return readDate() && separator() && readTime() && readOffset() && atEnd();
  }

  private void start(char[] value, int offset, int count) {
    // A longer text is truncated and then rejected, because the parser does not reach its length.
    length = count;
    int copied = Math.min(length, MAX_LENGTH);
    System.arraycopy(value, offset, text, 0, copied);
    restart(copied);
  }

  private void restart(int copied) {
    text[copied] = 0;
    at = 0;
    epochSecond = 0;
    nano = 0;
  }

  private boolean readDate() {
    int yearDigits = countDigits();
    // PostgreSQL writes years above 9999 without a sign.
    if (yearDigits < 4 || yearDigits > 6) {
      return false;
    }
    int year = number(yearDigits);
    int month = skip('-') ? twoDigits() : -1;
    int day = month >= 0 && skip('-') ? twoDigits() : -1;
    if (day < 0) {
      return false;
    }
    try {
      epochSecond = LocalDate.of(year, month, day).toEpochDay() * SECONDS_PER_DAY;
      return true;
    } catch (DateTimeException e) {
      return false;
    }
  }

  private boolean readTime() {
    int hour = twoDigits();
    if (hour < 0 || hour > 23 || !skip(':')) {
      return false;
    }
    int minute = twoDigits();
    if (minute < 0 || minute > 59 || !skip(':')) {
      return false;
    }
    int second = twoDigits();
    if (second < 0 || second > 59) {
      return false;
    }
    epochSecond += hour * 3600 + minute * 60 + second;
    return !skip('.') || readFraction();
  }

  private boolean readFraction() {
    int digits = countDigits();
    if (digits == 0 || digits > 9) {
      return false;
    }
    int value = number(digits);
    for (int i = digits; i < 9; i++) {
      value *= 10;
    }
    nano = value;
    return true;
  }

  private boolean readOffset() {
    if (skip('Z') || skip('z')) {
      return true;
    }
    int sign = skip('+') ? 1 : skip('-') ? -1 : 0;
    int hours = sign == 0 ? -1 : pairOfDigits();
    if (hours < 0 || hours > 18) {
      return false;
    }
    int minutes = 0;
    if (skip(':') || at < length) {
      minutes = pairOfDigits();
      if (minutes < 0 || minutes > 59) {
        return false;
      }
    }
    epochSecond -= sign * (hours * 3600L + minutes * 60L);
    return true;
  }

  private boolean separator() {
    return skip('T') || skip(' ') || skip('t');
  }

  private boolean atEnd() {
    return at == length;
  }

  private boolean skip(char expected) {
    if (text[at] == expected) {
      at++;
      return true;
    }
    return false;
  }

  /** Return exactly two digits, or -1. */
  private int twoDigits() {
    int value = pairOfDigits();
    return value < 0 || isDigit(text[at]) ? -1 : value;
  }

  /** Return the next two digits, whatever follows them, or -1. */
  private int pairOfDigits() {
    // Index at + 1 exists: if at were the terminator, the first condition would fail.
    if (!isDigit(text[at]) || !isDigit(text[at + 1])) {
      return -1;
    }
    return 10 * (text[at++] - '0') + text[at++] - '0';
  }

  private int countDigits() {
    int end = at;
    while (isDigit(text[end])) {
      end++;
    }
    return end - at;
  }

  private static boolean isDigit(char c) {
    return c >= '0' && c <= '9';
  }

  private int number(int digits) {
    int value = 0;
    for (int end = at + digits; at < end; at++) {
      value = 10 * value + text[at] - '0';
    }
    return value;
  }
}
