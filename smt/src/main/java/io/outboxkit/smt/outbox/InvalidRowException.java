package io.outboxkit.smt.outbox;

/**
 * A row that cannot be routed. The message names columns, field paths and expected types, never
 * what the row holds. Without a stack trace: it is an outcome, and it can come often.
 */
public final class InvalidRowException extends Exception {
  private static final long serialVersionUID = 1L;

  private final Reason reason;

  InvalidRowException(Reason reason, String message) {
    super(message, null, false, false);
    this.reason = reason;
  }

  public Reason reason() {
    return reason;
  }
}
