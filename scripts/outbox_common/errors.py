"""Expected errors that outbox_kit and outbox_spark raise. Their modules `errors` export these classes too.

A message states what failed and the invalid value (never a secret, never a payload); `hint` is the next step. The
command line prints both, and the traceback only with `--debug`.
"""

from __future__ import annotations


class OutboxKitError(Exception):
    """Base class of the errors that are reported as a message instead of a traceback."""

    transient = True
    """Whether the same command may succeed later without any change."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # a service sees errors as tracebacks


class ConfigurationError(OutboxKitError):
    """A file, an option, a secret or a jar is missing or invalid."""

    transient = False


class UnreachableError(OutboxKitError):
    """A system gave no valid response, or PostgreSQL or Kafka rejected the credentials."""


class RejectedError(OutboxKitError):
    """A system responded with an error."""


class RefusedError(OutboxKitError):
    """The command refuses to continue, for example because rows could be lost."""

    transient = False
