package io.outboxkit.smt.outbox;

/**
 * Payloads of one aggregate type as values of records. Which one it is, is decided once per type
 * when the router is configured. Not thread-safe.
 */
interface PayloadEncoder {
  /**
   * The value for the row's payload.
   *
   * @return an array of exactly the value's bytes; null for a tombstone
   * @throws InvalidRowException if the payload cannot be one; never shows what it holds
   */
  byte[] encode(OutboxRow row) throws InvalidRowException;

  /** Media type of the values; of all but text it is Avro's. */
  default String contentType(OutboxRow row) {
    return "application/avro";
  }
}
