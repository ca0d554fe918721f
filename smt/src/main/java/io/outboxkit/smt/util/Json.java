package io.outboxkit.smt.util;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.util.JsonRecyclerPools;

/** Jackson factories with the limits for JSON in outbox rows and messages. */
public final class Json {
  /** Jackson's default of 1000 levels nearly exhausts a thread's default stack of 1 MiB. */
  public static final int MAX_DEPTH = 200;

  /** Factory for the JSON of one column. */
  public static final JsonFactory FACTORY = factory(MAX_DEPTH);

  /** Factory for messages. A member of a message can be nested as deeply as a column. */
  public static final JsonFactory MESSAGE_FACTORY = factory(MAX_DEPTH + 1);

  private Json() {}

  private static JsonFactory factory(int maxDepth) {
    return JsonFactory.builder()
        // Map keys are data: interning them costs memory and time.
        .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
        .streamReadConstraints(StreamReadConstraints.builder().maxNestingDepth(maxDepth).build())
        .recyclerPool(JsonRecyclerPools.threadLocalPool())
        .build();
  }

  /** Return whether the text is JSON null, ignoring surrounding white space. */
  public static boolean isNull(String text) {
    // PostgreSQL removes white space around the literal in jsonb, but not in json and text.
    return text.equals("null") || text.length() > 4 && text.strip().equals("null");
  }
}
