"""Expected errors of the commands: those of outbox_events.errors, and StackError; hints that several commands print.

The command line prints message and hint, and the traceback only with `--debug`.
"""

from __future__ import annotations

from outbox_events.errors import (
    ConfigurationError,
    OutboxError,
    RefusedError,
    RejectedError,
    UnreachableError,
    WaitTimeoutError,
)

__all__ = [
    "ConfigurationError",
    "OutboxError",
    "RefusedError",
    "RejectedError",
    "StackError",
    "UnreachableError",
    "WaitTimeoutError",
]

# Commands that send the latest states again, and tombstones of deleted aggregates, after rows did not reach Kafka.
RESEND_HINT = "`outbox backfill --restart`, then `outbox stuck --resend`"
# Hint of the errors whose cause `outbox recover` names; it needs the lock file.
RECOVER_HINT = "run `outbox recover`"
# Hint of the errors about a slot, source or lock file whose cause `outbox recover` does not know.
APPLY_RECOVER_HINT = f"run `outbox apply --recover`, {RESEND_HINT}"


class StackError(OutboxError):
    """The embedded stack could not be started or stopped."""
