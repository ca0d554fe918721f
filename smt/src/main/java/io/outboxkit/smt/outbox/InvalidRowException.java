package io.outboxkit.smt.outbox;

import io.outboxkit.smt.util.MessageText;
import java.util.Locale;

/**
 * Thrown for a row that cannot be routed. The message contains column names, field paths, expected
 * types and, of the row's values, only names that look like identifiers. The exception has no stack
 * trace, because stack traces are costly and many rows of a backlog can be invalid.
 */
public final class InvalidRowException extends Exception {
  private static final long serialVersionUID = 1L;

  /** Reasons why rows are invalid. The codes are part of the contract with consumers. */
  public enum Reason {
    MESSAGE_INVALID,
    MESSAGE_NOT_TRANSACTIONAL,
    PAYLOAD_INVALID,
    SCHEMA_VERSION_UNKNOWN,
    UNKNOWN_AGGREGATE_TYPE,
    EMPTY_KEY,
    EMPTY_EVENT_ID,
    EMPTY_EVENT_TYPE,
    EMPTY_PARTITION_FIELD,
    EVENT_TIME_INVALID,
    HEADERS_INVALID,
    RECORD_TOO_LARGE;

    /** Return the value of the header {@code dead_letter_reason}. */
    public String code() {
      return name().toLowerCase(Locale.ROOT).replace('_', '-');
    }
  }

  /** Limit for messages, because the paths and types of a large schema can exceed a record. */
  private static final int MAX_MESSAGE_LENGTH = 1000;

  private final Reason reason;

  public InvalidRowException(Reason reason, String message) {
    super(MessageText.abbreviate(message, MAX_MESSAGE_LENGTH), null, false, false);
    this.reason = reason;
  }

  public Reason reason() {
    return reason;
  }
}
