package io.outboxkit.smt.util;

/** What may be repeated of a name that came with the data, in messages and in logs. */
public final class Names {
  private static final int MAX_SHOWN = 64;

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
}
