package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.util.JsonParserDelegate;
import java.io.IOException;
import java.math.BigInteger;

/**
 * Reads buffered tokens again for one branch of a union, and counts them. The count is limited,
 * because nested unions multiply the work and a small payload could take hours.
 */
final class ReplayParser extends JsonParserDelegate {
  /** Thrown if union branches read more tokens and chars than the payload's limit. */
  static final class LimitExceededException extends IOException {
    private static final long serialVersionUID = 1L;
  }

  private final AvroOutput out;

  /** Read the tokens of {@code buffer}, and count them in {@code out}, which checks the limit. */
  ReplayParser(JsonParser buffer, AvroOutput out) {
    super(buffer);
    this.out = out;
  }

  @Override
  public JsonToken nextToken() throws IOException {
    JsonToken token = delegate.nextToken();
    if (!out.countReplay(1 + lengthOf(token))) {
      throw new LimitExceededException();
    }
    return token;
  }

  /** Skip with {@link #nextToken}, because the delegate would not count the skipped tokens. */
  @Override
  public JsonParser skipChildren() throws IOException {
    int depth = currentToken().isStructStart() ? 1 : 0;
    while (depth > 0) {
      JsonToken token = nextToken();
      depth += token.isStructStart() ? 1 : token.isStructEnd() ? -1 : 0;
    }
    return this;
  }

  private int lengthOf(JsonToken token) throws IOException {
    if (token == JsonToken.VALUE_STRING || token == JsonToken.FIELD_NAME) {
      return delegate.getTextLength();
    }
    if (token == null || !token.isNumeric()) {
      return 0;
    }
    Object number = delegate.getNumberValueDeferred();
    if (number instanceof String text) {
      return text.length();
    }
    return number instanceof BigInteger integer ? integer.bitLength() / 3 : 0;
  }
}
