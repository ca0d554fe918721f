"""Define the expected errors. All of them are derived from OutboxError.

    OutboxError
    ├── ConfigurationError     a file, an option or a secret is missing or wrong
    ├── UnreachableError       a system did not return a valid response, or PostgreSQL or Kafka rejected the login
    ├── RejectedError          a system rejected the request
    ├── RefusedError           the library or command refuses to continue, for example because rows could be lost
    └── WaitTimeoutError       a condition did not become true within its time limit

`message` states what failed and which value was invalid, but never contains a secret or a payload. `hint` states the
next step. Commands print the message and the hint. They print the traceback only with `--debug`.
"""

from __future__ import annotations


class OutboxError(Exception):
    """Base class of the errors that are reported as a message instead of a traceback."""

    transient = True
    """Whether the same command can succeed later although nothing is corrected."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # shown in the tracebacks of a service


class ConfigurationError(OutboxError):
    """A file, an option, a secret or a jar is missing or invalid."""

    transient = False


class UnreachableError(OutboxError):
    """A system did not return a valid response, or PostgreSQL or Kafka rejected the credentials."""


class RejectedError(OutboxError):
    """A system responded with an error."""


class RefusedError(OutboxError):
    """The library or command refuses to continue, for example because rows could be lost."""

    transient = False


class WaitTimeoutError(OutboxError):
    """A condition did not become true within its time limit."""
