package io.outboxkit.smt.outbox;

/** Encodes the payloads of one aggregate type as record values. Not thread-safe. */
public interface PayloadEncoder {
  /** Return the record value, or null for a tombstone. Throw if payload or version is invalid. */
  byte[] encode(OutboxRow row) throws InvalidRowException;

  /** Return the media type of the record value. */
  default String contentType(OutboxRow row) {
    return "application/avro";
  }
}
