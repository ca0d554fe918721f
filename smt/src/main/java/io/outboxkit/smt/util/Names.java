package io.outboxkit.smt.util;

/** What may be repeated of names and values, in messages and in logs. */
public final class Names {
  private static final int MAX_SHOWN = 64;

  /** Of an option's value: enough of a schema to tell which it is. */
  private static final int MAX_VALUE = 60;

  private Names() {}

  /**
   * The name in quotes if it looks like an identifier (letters, digits, {@code _ . -}, at most 64
   * characters); otherwise a description of it. Names in data can be data: a map that was written
   * where a record is expected has e-mail addresses for field names.
   */
  public static String shown(String name) {
    if (name.isEmpty() || name.length() > MAX_SHOWN) {
      return "(a name of " + name.length() + " characters)";
    }
    for (int i = 0; i < name.length(); i++) {
      char c = name.charAt(i);
      boolean letter = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z';
      if (!letter && !(c >= '0' && c <= '9') && c != '_' && c != '.' && c != '-') {
        return "(a name of " + name.length() + " characters)";
      }
    }
    return "\"" + name + "\"";
  }

  /** The beginning of an option's value; an empty option is {@code null}. */
  public static String shortened(Object value) {
    String text = String.valueOf(value);
    return text.length() <= MAX_VALUE ? text : text.substring(0, MAX_VALUE) + "...";
  }
}
