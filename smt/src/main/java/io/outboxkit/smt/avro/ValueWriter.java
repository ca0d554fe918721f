package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;

/** Writes JSON values of one place in a schema. Used by one thread at a time. */
abstract class ValueWriter {
  private final String expected;

  /**
   * @param expected the type in words, for messages: {@code decimal(12,2)}
   */
  ValueWriter(String expected) {
    this.expected = expected;
  }

  final String expected() {
    return expected;
  }

  /** Whether a value that starts with this token can be of this type at all. */
  abstract boolean takes(JsonToken token);

  /**
   * Writes the value that starts at the parser's current token and leaves the parser at its last
   * one.
   *
   * @throws PayloadException if the value does not fit; what was written up to there is to be
   *     undone
   */
  abstract void write(JsonParser json, AvroOutput out) throws IOException, PayloadException;

  final PayloadException mismatch(JsonParser json) {
    return PayloadException.mismatch(expected, json.currentToken());
  }

  /** As {@link #mismatch}, for a value of the right JSON kind. */
  final PayloadException mismatch(String found) {
    return new PayloadException("expected " + expected + ", found " + found);
  }
}
