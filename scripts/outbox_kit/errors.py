"""Every error that a user can expect, under one root.

    OutboxKitError
    ├── ConfigurationError     a file, an option or a secret is missing or wrong
    ├── UnreachableError       a system did not answer, or refused the credentials
    ├── RejectedError          a system answered, and said no
    ├── WaitTimeoutError       something did not happen within its bound
    ├── RefusedError           the kit itself declines, because going on could lose rows
    └── StackError             the embedded stack could not be started or stopped

Each message names the thing and the value (never a secret, never a payload); `hint` is the next step.
The command line prints both and keeps the traceback for `--debug`.
"""

from __future__ import annotations

# The next step wherever slot, database or position are not the lock file's.
RECOVER = "`outbox apply --recover`, then write the newest state of the aggregates concerned again"


class OutboxKitError(Exception):
    """Root of the errors that are explained to the user instead of shown as a traceback."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigurationError(OutboxKitError):
    """A file, an option or a secret is missing or wrong."""


class UnreachableError(OutboxKitError):
    """A system did not answer, or refused the credentials."""


class RejectedError(OutboxKitError):
    """A system answered, and said no."""


class WaitTimeoutError(OutboxKitError):
    """Something did not happen within its bound."""


class RefusedError(OutboxKitError):
    """The kit declines, because going on could lose rows."""


class StackError(OutboxKitError):
    """The embedded stack could not be started or stopped."""
