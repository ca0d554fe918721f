package io.outboxkit.smt.util;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.util.JsonRecyclerPools;

/** Jackson factories with limits for the JSON in outbox rows and messages. */
public final class Json {
  /** Maximum nesting depth. Jackson's default, 1000, nearly exhausts a thread's stack of 1 MiB. */
  public static final int MAX_DEPTH = 200;

  /** Factory for the JSON of one column. */
  public static final JsonFactory FACTORY = createFactory(MAX_DEPTH);

  /** Factory for messages. It allows one more level, because a member contains a column's JSON. */
  public static final JsonFactory MESSAGE_FACTORY = createFactory(MAX_DEPTH + 1);

  private Json() {}

  private static JsonFactory createFactory(int maxDepth) {
    return JsonFactory.builder()
        // Names can be map keys, which are data. Interning them would cost memory and time.
        .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
        .streamReadConstraints(StreamReadConstraints.builder().maxNestingDepth(maxDepth).build())
        .recyclerPool(JsonRecyclerPools.threadLocalPool())
        .build();
  }

  /** Return whether the text is JSON null, ignoring surrounding white space. */
  public static boolean isNull(String text) {
    // In json and text columns, white space can surround null. In jsonb, PostgreSQL removes it.
    int start = 0;
    int end = text.length();
    while (start < end && isWhiteSpace(text.charAt(start))) {
      start++;
    }
    while (end > start && isWhiteSpace(text.charAt(end - 1))) {
      end--;
    }
    return end - start == 4 && text.startsWith("null", start);
  }

  /** Only these characters are white space in JSON; other Unicode white space is not. */
  private static boolean isWhiteSpace(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
  }
}
