"""Spark jobs that materialize compacted topics into PostgreSQL, Delta and Iceberg tables.

The names in `__all__` are the API for programs that have their own Spark session (docs/embedding.md). Each name is
loaded on first use, so that importing this package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outbox_events.errors import ConfigurationError, OutboxError, RefusedError
    from outbox_spark.errors import OverlapError, SchemaError
    from outbox_spark.jobs.model import MaterializeJob, Outcome, Status
    from outbox_spark.library import load_jobs, materialize, read_changes, read_jobs, read_state

__all__ = [
    "ConfigurationError",
    "MaterializeJob",
    "OutboxError",
    "Outcome",
    "OverlapError",
    "RefusedError",
    "SchemaError",
    "Status",
    "load_jobs",
    "materialize",
    "read_changes",
    "read_jobs",
    "read_state",
]

_MODULES = ("outbox_events.errors", "outbox_spark.errors", "outbox_spark.jobs.model", "outbox_spark.library")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    modules = map(import_module, _MODULES)
    return next(getattr(module, name) for module in modules if hasattr(module, name))
