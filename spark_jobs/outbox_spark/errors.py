"""Every error that a user of the jobs can expect, under one root.

    MaterializeError
    ├── ConfigurationError     a file, an option or a jar is missing or wrong
    ├── UnreachableError       Kafka, the registry or the target did not answer, or refused the credentials
    ├── SchemaError            a schema cannot become, or no longer fits, the table
    └── RefusedError           going on could lose, mix or resurrect rows
        └── OverlapError       another run has the table, or has just changed it

`transient` says whether the same run may succeed later without anybody doing anything: the exit code tells it on.

Each message names the thing and the value (never a secret, never a payload); `hint` is the next step.
The command line prints both and keeps the traceback for `--debug`.
"""

from __future__ import annotations


class MaterializeError(Exception):
    """Root of the errors that are explained to the user instead of shown as a traceback."""

    transient = True

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigurationError(MaterializeError):
    """A file, an option or a jar is missing or wrong."""

    transient = False


class UnreachableError(MaterializeError):
    """A system did not answer, or refused the credentials."""


class SchemaError(MaterializeError):
    """A schema cannot become a table, or no longer fits the one that is there."""

    transient = False


class RefusedError(MaterializeError):
    """The job declines, because going on could lose, mix or resurrect rows."""

    transient = False


class OverlapError(RefusedError):
    """Another run has the table, or has committed to it since this one looked."""

    transient = True
