package io.outboxkit.smt.util;

import java.time.DateTimeException;
import java.time.LocalDate;

/**
 * Reads dates, times and timestamps in the ISO-8601 forms that PostgreSQL, Debezium and JSON
 * libraries write: {@code 2026-11-20}, {@code 18:31:38.123456}, {@code
 * 2026-11-20T18:31:38.123456+00:00}; {@code Z}, {@code +00}, {@code +0530} and a blank for the T
 * are taken too. No infinity, no years BC, no 24:00, no leap second.
 *
 * <p>By hand because DateTimeFormatter costs more than the rest of a record together. Reused from
 * text to text; not thread-safe.
 */
public final class IsoText {
  private static final int SECONDS_PER_DAY = 86_400;

  /** The longest that can be one: {@code 999999-12-31T23:59:59.999999999+18:00:00} and some. */
  private static final int MAX_LENGTH = 48;

  /** Behind the text is a 0, which is no digit and no separator. */
  private final char[] text = new char[MAX_LENGTH + 1];

  private int length;
  private int at;
  private long epochSecond;
  private int nano;

  /** Seconds since 1970-01-01T00:00:00, UTC or local; since midnight after {@link #time}. */
  public long epochSecond() {
    return epochSecond;
  }

  /** Days since 1970-01-01 of the date read last. */
  public long epochDay() {
    return Math.floorDiv(epochSecond, (long) SECONDS_PER_DAY);
  }

  /** Nanoseconds of the second. */
  public int nano() {
    return nano;
  }

  /** Reads {@code YYYY-MM-DD}; false if the text is anything else. */
  public boolean date(char[] value, int offset, int count) {
    start(value, offset, count);
    return readDate() && atEnd();
  }

  /** Reads {@code HH:MM:SS[.f]}; false if the text is anything else. */
  public boolean time(char[] value, int offset, int count) {
    start(value, offset, count);
    return readTime() && atEnd();
  }

  /** Reads a date, T and a time without offset; false if the text is anything else. */
  public boolean localTimestamp(char[] value, int offset, int count) {
    start(value, offset, count);
    return readDate() && separator() && readTime() && atEnd();
  }

  /** Reads a date, T, a time and an offset; false if the text is anything else. */
  public boolean timestamp(char[] value, int offset, int count) {
    start(value, offset, count);
    return readTimestamp();
  }

  /** As {@link #timestamp(char[], int, int)}. */
  public boolean timestamp(String value) {
    start(value);
    return readTimestamp();
  }

  private boolean readTimestamp() {
    return readDate() && separator() && readTime() && readOffset() && atEnd();
  }

  private void start(String value) {
    // Of a longer one the part that fits is read, and then there is more: it is refused.
    length = value.length();
    int read = Math.min(length, MAX_LENGTH);
    value.getChars(0, read, text, 0);
    restart(read);
  }

  private void start(char[] value, int offset, int count) {
    length = count;
    int read = Math.min(length, MAX_LENGTH);
    System.arraycopy(value, offset, text, 0, read);
    restart(read);
  }

  private void restart(int read) {
    text[read] = 0;
    at = 0;
    epochSecond = 0;
    nano = 0;
  }

  private boolean readDate() {
    int yearDigits = digitsAhead();
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
    int digits = digitsAhead();
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

  /** Exactly two digits, or -1. */
  private int twoDigits() {
    int value = pairOfDigits();
    return value < 0 || isDigit(text[at]) ? -1 : value;
  }

  /** The next two digits whatever follows them, or -1. */
  private int pairOfDigits() {
    // The second is not behind the text: the first would be the 0 there.
    if (!isDigit(text[at]) || !isDigit(text[at + 1])) {
      return -1;
    }
    return 10 * (text[at++] - '0') + text[at++] - '0';
  }

  private int digitsAhead() {
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
