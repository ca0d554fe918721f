package io.outboxkit.smt.outbox;

/**
 * A row that cannot be routed. The message has column names, field paths and expected types, but
 * never values of the row. Without a stack trace, because it can occur for each row of a backlog.
 */
public final class InvalidRowException extends Exception {
  private static final long serialVersionUID = 1L;

  /** Reasons, whose codes are part of the contract with consumers of dead letters. */
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

    /** Return the value of the header {@code dead_letter_reason}. */
    public String code() {
      return code;
    }
  }

  private final Reason reason;

  public InvalidRowException(Reason reason, String message) {
    super(message, null, false, false);
    this.reason = reason;
  }

  public Reason reason() {
    return reason;
  }
}
