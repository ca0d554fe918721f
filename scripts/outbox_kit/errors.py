"""Expected errors of the commands: those of outbox_events.errors, and StackError.

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


class StackError(OutboxError):
    """The embedded stack could not be started or stopped."""
