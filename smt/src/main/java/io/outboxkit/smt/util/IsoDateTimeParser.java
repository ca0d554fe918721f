package io.outboxkit.smt.util;

import java.time.DateTimeException;
import java.time.LocalDate;

/**
 * Parser of dates, times and timestamps in the ISO-8601 formats of PostgreSQL, Debezium and JSON
 * libraries: {@code 2026-11-20}, {@code 18:31:38.123456}, {@code 2026-11-20T18:31:38.123456+00:00}.
 * It also accepts the UTC offsets {@code Z}, {@code +00} and {@code +0530}, and a space instead of
 * the T. Infinity, years BC, 24:00 and leap seconds are rejected. The parse methods return whether
 * the text is valid. DateTimeFormatter is not used, because it would dominate the CPU time per
 * record. Not thread-safe.
 */
public final class IsoDateTimeParser {
  private static final int SECONDS_PER_DAY = 86_400;

  /** Length above the longest valid text, {@code 999999-12-31T23:59:59.999999999+18:00}. */
  private static final int MAX_LENGTH = 48;

  /** The text, then U+0000, which ends reading because it is neither a digit nor a separator. */
  private final char[] text = new char[MAX_LENGTH + 1];

  private int length;
  private int position;
  private long epochSecond;
  private int nano;

  /** Return the seconds since 1970-01-01T00:00:00, or since midnight if only a time was parsed. */
  public long epochSecond() {
    return epochSecond;
  }

  /** Return the days since 1970-01-01. */
  public long epochDay() {
    return Math.floorDiv(epochSecond, (long) SECONDS_PER_DAY);
  }

  /** Return the fraction of the second, in nanoseconds. */
  public int nano() {
    return nano;
  }

  /** Parse {@code YYYY-MM-DD}. */
  public boolean parseDate(char[] value, int offset, int count) {
    loadText(value, offset, count);
    return readDate() && atEnd();
  }

  /** Parse {@code HH:MM:SS[.f]}. */
  public boolean parseTime(char[] value, int offset, int count) {
    loadText(value, offset, count);
    return readTime() && atEnd();
  }

  /** Parse a date and a time without a UTC offset. */
  public boolean parseLocalTimestamp(char[] value, int offset, int count) {
    loadText(value, offset, count);
    return readDate() && skipSeparator() && readTime() && atEnd();
  }

  /** Parse a date, a time and a UTC offset. */
  public boolean parseTimestamp(char[] value, int offset, int count) {
    loadText(value, offset, count);
    return readTimestamp();
  }

  /** Parse a date, a time and a UTC offset. */
  public boolean parseTimestamp(String value) {
    length = value.length();
    int copiedLength = Math.min(length, MAX_LENGTH);
    value.getChars(0, copiedLength, text, 0);
    reset(copiedLength);
    return readTimestamp();
  }

  private boolean readTimestamp() {
    return readDate() && skipSeparator() && readTime() && readOffset() && atEnd();
  }

  private void loadText(char[] value, int offset, int count) {
    // Text longer than MAX_LENGTH is truncated, and is rejected because atEnd() returns false.
    length = count;
    int copiedLength = Math.min(length, MAX_LENGTH);
    System.arraycopy(value, offset, text, 0, copiedLength);
    reset(copiedLength);
  }

  private void reset(int copiedLength) {
    text[copiedLength] = 0;
    position = 0;
    epochSecond = 0;
    nano = 0;
  }

  private boolean readDate() {
    // Years have up to six digits, because PostgreSQL writes years above 9999 without a sign.
    int year = readNumber(4, 6);
    int month = year >= 0 && skip('-') ? readNumber(2, 2) : -1;
    int day = month >= 0 && skip('-') ? readNumber(2, 2) : -1;
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
    int hour = readNumber(2, 2);
    int minute = hour >= 0 && skip(':') ? readNumber(2, 2) : -1;
    int second = minute >= 0 && skip(':') ? readNumber(2, 2) : -1;
    if (second < 0 || hour > 23 || minute > 59 || second > 59) {
      return false;
    }
    epochSecond += hour * 3600 + minute * 60 + second;
    return !skip('.') || readFraction();
  }

  private boolean readFraction() {
    int start = position;
    nano = readNumber(1, 9);
    for (int digits = position - start; digits < 9; digits++) {
      nano *= 10;
    }
    return nano >= 0;
  }

  private boolean readOffset() {
    if (skip('Z') || skip('z')) {
      return true;
    }
    int sign = skip('+') ? 1 : skip('-') ? -1 : 0;
    int start = position;
    int hours = readNumber(2, 4);
    int minutes = 0;
    if (position - start > 2) {
      minutes = position - start == 4 ? hours % 100 : -1;
      hours /= 100;
    } else if (skip(':')) {
      minutes = readNumber(2, 2);
    }
    epochSecond -= sign * (hours * 3600L + minutes * 60L);
    return sign != 0 && hours >= 0 && hours <= 18 && minutes >= 0 && minutes <= 59;
  }

  private boolean skipSeparator() {
    return skip('T') || skip(' ') || skip('t');
  }

  private boolean atEnd() {
    return position == length;
  }

  private boolean skip(char expected) {
    if (text[position] != expected) {
      return false;
    }
    position++;
    return true;
  }

  /** Read digits as a number. Return -1 if there are too few or too many digits. */
  private int readNumber(int minDigits, int maxDigits) {
    int start = position;
    int value = 0;
    for (char c = text[position]; c >= '0' && c <= '9'; c = text[++position]) {
      value = 10 * value + c - '0';
    }
    int digits = position - start;
    return digits < minDigits || digits > maxDigits ? -1 : value;
  }
}
