package io.outboxkit.smt.util;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.util.JsonRecyclerPools;

/** Jackson factory with the limits for all JSON in outbox rows and messages. */
public final class Json {
  /** Jackson's default of 1000 levels nearly exhausts a thread's default stack of 1 MiB. */
  public static final int MAX_DEPTH = 200;

  // Map keys are data: interning them costs memory and time.
  public static final JsonFactory FACTORY =
      JsonFactory.builder()
          .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
          .streamReadConstraints(StreamReadConstraints.builder().maxNestingDepth(MAX_DEPTH).build())
          .recyclerPool(JsonRecyclerPools.threadLocalPool())
          .build();

  private Json() {}

  /** Return whether the text is JSON null, ignoring surrounding white space. */
  public static boolean isNull(String text) {
    // jsonb has no white space around the literal; json and text columns keep what was inserted.
    return text.equals("null") || text.length() > 4 && text.strip().equals("null");
  }
}
