package io.outboxkit.smt.util;

/** The JSON value null as text. */
public final class JsonNull {
  private static final String NULL = "null";

  private JsonNull() {}

  /** Whether the text is JSON null, white space aside. */
  public static boolean is(String text) {
    // jsonb writes exactly this; json and text columns keep the white space they were given.
    return text.equals(NULL) || text.length() > NULL.length() && text.strip().equals(NULL);
  }
}
