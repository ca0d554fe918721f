package io.outboxkit.smt.outbox;

/**
 * Why a row cannot be routed. The codes are a contract: consumers of dead letters match on them.
 */
public enum Reason {
  MESSAGE_INVALID("message-invalid"),
  MESSAGE_NOT_TRANSACTIONAL("message-not-transactional"),
  PAYLOAD_INVALID("payload-invalid"),
  SCHEMA_VERSION_UNKNOWN("schema-version-unknown"),
  UNKNOWN_AGGREGATE_TYPE("unknown-aggregate-type"),
  EMPTY_KEY("empty-key"),
  EMPTY_EVENT_ID("empty-event-id"),
  EMPTY_EVENT_TYPE("empty-event-type"),
  EMPTY_PARTITION_FIELD("empty-partition-field"),
  EVENT_TIME_INVALID("event-time-invalid"),
  HEADERS_INVALID("headers-invalid"),
  RECORD_TOO_LARGE("record-too-large");

  private final String code;

  Reason(String code) {
    this.code = code;
  }

  /** The text of the header {@code dead_letter_reason}. */
  public String code() {
    return code;
  }
}
