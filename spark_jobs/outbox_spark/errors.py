"""Expected errors of the jobs, with a common base class. `transient` (retryable) determines the exit code.

    OutboxError
    ├── ConfigurationError     a file, an option, a secret or a jar is missing or invalid
    ├── UnreachableError       Kafka, the registry or the target did not respond, or rejected the credentials
    ├── SchemaError            a schema cannot be mapped to columns, or is incompatible with the existing table
    └── RefusedError           the job refuses to continue because rows could be lost, mixed or resurrected
        └── OverlapError       another run has locked or changed the table

The other classes, messages and hints: see outbox_events.errors.
"""

from __future__ import annotations

from outbox_events.errors import ConfigurationError, OutboxError, RefusedError, UnreachableError

__all__ = [
    "ConfigurationError",
    "OutboxError",
    "OverlapError",
    "RefusedError",
    "SchemaError",
    "UnreachableError",
]


class SchemaError(OutboxError):
    """A schema cannot be mapped to columns, or is incompatible with the existing table."""

    transient = False


class OverlapError(RefusedError):
    """Another run has locked the table, or has committed to it since this run read it."""

    transient = True
