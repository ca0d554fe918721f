package io.outboxkit.smt.outbox;

import io.outboxkit.smt.util.Utf8;
import java.nio.charset.StandardCharsets;

/** Text as it is in UTF-8, without a schema; SQL NULL as a tombstone. */
final class TextPayloads implements PayloadEncoder {
  @Override
  public byte[] encode(OutboxRow row) throws InvalidRowException {
    String payload = (String) row.payload();
    if (payload == null) {
      return null;
    }
    if (Utf8.holdsHalfPair(payload)) {
      throw new InvalidRowException(
          Reason.PAYLOAD_INVALID, "the payload holds half a surrogate pair, which is no UTF-8");
    }
    return payload.getBytes(StandardCharsets.UTF_8);
  }

  @Override
  public String contentType(OutboxRow row) {
    return row.columns().payloadIsJson() ? "application/json" : "text/plain; charset=utf-8";
  }
}
