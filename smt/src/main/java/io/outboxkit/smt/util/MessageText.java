package io.outboxkit.smt.util;

/** Formats names and option values for error messages and logs, without payload data. */
public final class MessageText {
  private static final int MAX_NAME_LENGTH = 64;
  private static final int MAX_VALUE_LENGTH = 60;

  private MessageText() {}

  /**
   * Return the name in quotes if it is an identifier (letters, digits, {@code _ . -}, at most 64
   * characters). Otherwise return only its length, because the name can be data, such as a map key.
   */
  public static String quote(String name) {
    if (name == null) {
      return "null";
    }
    boolean isIdentifier = !name.isEmpty() && name.length() <= MAX_NAME_LENGTH;
    for (int i = 0; isIdentifier && i < name.length(); i++) {
      char c = name.charAt(i);
      boolean isLetter = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z';
      isIdentifier = isLetter || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-';
    }
    return isIdentifier ? "\"" + name + "\"" : "(a name of " + name.length() + " characters)";
  }

  /** Return the first 60 characters of an option's value. */
  public static String abbreviate(Object value) {
    return abbreviate(String.valueOf(value), MAX_VALUE_LENGTH);
  }

  /** Return the text, or its first {@code maxLength} characters and an ellipsis. */
  public static String abbreviate(String text, int maxLength) {
    return text.length() <= maxLength ? text : text.substring(0, maxLength) + "...";
  }
}
