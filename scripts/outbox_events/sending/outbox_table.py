"""Define the names of the outbox table and its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outbox_events.errors import ConfigurationError

DEFAULT_TABLE = "public.outbox_event"
COLUMNS = ("id", "aggregate_type", "aggregate_id", "event_type", "payload", "headers")
"""Contract columns that `emit` writes. The table generates the values of the other columns."""
GENERATED_COLUMNS = ("created_at",)


@dataclass(frozen=True)
class OutboxTable:
    """Name of the outbox table, and column names that differ from the contract.

    `name` is `schema.table`, or `table` to use the search_path. `columns` is `source.columns` of the pipeline file.
    Names are quoted, so they are case-sensitive. Raises ConfigurationError for an invalid name or an unknown column.
    """

    name: str = DEFAULT_TABLE
    columns: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        schema, dot, name = self.name.rpartition(".")
        if not name or "." in schema or bool(schema) != bool(dot) or "\0" in self.name:
            raise ConfigurationError(f"the outbox table must be given as TABLE or SCHEMA.TABLE, not {self.name!r}")
        known = (*COLUMNS, *GENERATED_COLUMNS)
        unknown = [key for key in self.columns if key not in known]
        if unknown:
            hint = f"use the keys of source.columns in the pipeline file: {', '.join(known)}"
            raise ConfigurationError(f"the contract of the outbox table has no column {unknown[0]!r}", hint)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the schema and the table, or only of the table."""
        return tuple(self.name.split("."))

    def column(self, key: str) -> str:
        """Return the name that a contract column has in this table."""
        return self.columns.get(key, key)
