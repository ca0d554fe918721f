"""Expected errors, all derived from OutboxKitError.

    OutboxKitError
    ├── ConfigurationError     a file, an option or a secret is missing or wrong
    ├── UnreachableError       a system gave no valid response, or PostgreSQL or Kafka rejected the login
    ├── RejectedError          a system rejected the request
    ├── WaitTimeoutError       a condition did not become true within its time limit
    ├── RefusedError           outbox-kit refuses to continue, for example because rows could be lost
    └── StackError             the embedded stack could not be started or stopped

A message states what failed and the invalid value (no secret, no payload); a hint is a command or a key to change.
The command line prints both, and the traceback only with `--debug`.
"""

from __future__ import annotations

from outbox_common.errors import ConfigurationError, OutboxKitError, RefusedError, RejectedError, UnreachableError

__all__ = [
    "ConfigurationError",
    "OutboxKitError",
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


class WaitTimeoutError(OutboxKitError):
    """A condition did not become true within its time limit."""


class StackError(OutboxKitError):
    """The embedded stack could not be started or stopped."""
