package io.outboxkit.smt.outbox;

/**
 * JSON payloads with unknown fields ignored. A field that some version knows is not unknown: the
 * versions are asked to take the whole payload before they are asked to take a part of it.
 */
final class LenientPayloads implements PayloadEncoder {
  private final PayloadEncoder whole;
  private final PayloadEncoder known;

  /**
   * @param whole refuses unknown fields
   * @param known ignores them
   */
  LenientPayloads(PayloadEncoder whole, PayloadEncoder known) {
    this.whole = whole;
    this.known = known;
  }

  @Override
  public byte[] encode(OutboxRow row) throws InvalidRowException {
    try {
      return whole.encode(row);
    } catch (InvalidRowException e) {
      return known.encode(row);
    }
  }

  @Override
  public String contentType(OutboxRow row) {
    return known.contentType(row);
  }
}
