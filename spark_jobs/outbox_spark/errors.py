"""Define errors of the jobs, in addition to outbox_events.errors. `transient` (retryable) determines the exit code."""

from __future__ import annotations

from outbox_events.errors import OutboxError, RefusedError

REBUILD_HINT = "run `outbox-rebuild` (with --restart if an earlier rebuild was interrupted)"


class SchemaError(OutboxError):
    """A schema cannot be mapped to columns, or is incompatible with the existing table."""

    transient = False


class ForeignTableError(RefusedError):
    """A table has no progress, so outbox-materialize did not create it and must not change it."""


class OverlapError(RefusedError):
    """Another run has locked the table, or has committed to it since this run read it."""

    transient = True
