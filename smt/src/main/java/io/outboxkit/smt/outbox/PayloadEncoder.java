package io.outboxkit.smt.outbox;

/** Encodes the payloads of one aggregate type as record values. Not thread-safe. */
public interface PayloadEncoder {
  /** Return the record value, or null for a tombstone; throw if the payload is not valid. */
  byte[] encode(OutboxRow row) throws InvalidRowException;

  /** Return the media type of the row's value. */
  default String contentType(OutboxRow row) {
    return "application/avro";
  }
}
