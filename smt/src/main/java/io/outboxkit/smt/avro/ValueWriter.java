package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;

/** Writes the JSON values of one schema node as Avro binary. Not thread-safe. */
abstract class ValueWriter {
  private final String expected;

  /** The accepted tokens as a bit set, in which a bit's position is a token's ordinal. */
  private final int acceptedTokenBits;

  /**
   * @param expected description of the type for error messages
   * @param tokens first tokens of the JSON values that the writer accepts
   */
  ValueWriter(String expected, JsonToken... tokens) {
    this.expected = expected;
    int bits = 0;
    for (JsonToken token : tokens) {
      bits |= 1 << token.ordinal();
    }
    this.acceptedTokenBits = bits;
  }

  final String expected() {
    return expected;
  }

  final boolean accepts(JsonToken token) {
    return (acceptedTokenBits & 1 << token.ordinal()) != 0;
  }

  /** Require exactly this token. The comparison is faster than {@link #accepts}. */
  final void requireToken(JsonParser parser, JsonToken token) throws PayloadException {
    if (parser.currentToken() != token) {
      throw mismatch(parser);
    }
  }

  final void requireAcceptedToken(JsonParser parser) throws PayloadException {
    if (!accepts(parser.currentToken())) {
      throw mismatch(parser);
    }
  }

  /**
   * Write the value that starts at the parser's current token and leave the parser at the value's
   * last token.
   *
   * @throws PayloadException if the value does not fit the schema; the output is then incomplete
   */
  abstract void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException;

  /** Return an exception for a value of the wrong JSON type. */
  final PayloadException mismatch(JsonParser parser) {
    return PayloadException.mismatch(expected, parser.currentToken());
  }

  /** Return an exception for an invalid value whose JSON type is accepted. */
  final PayloadException mismatch(String actual) {
    return new PayloadException("expected " + expected + ", found " + actual);
  }
}
