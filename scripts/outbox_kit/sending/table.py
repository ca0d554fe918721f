"""Name of the outbox table, as a service configures it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from outbox_kit.errors import ConfigurationError

DEFAULT_TABLE = "public.outbox_event"


@dataclass(frozen=True)
class TableName:
    """Schema and name of a table, unquoted; without a schema the search_path applies."""

    schema: str | None
    name: str


@lru_cache(maxsize=64)
def parse_table(text: str) -> TableName:
    """Parse `schema.table` or `table`. Case is significant: both are quoted in SQL. Raises ConfigurationError."""
    schema, dot, name = text.rpartition(".")
    if not name or "." in schema or bool(schema) != bool(dot) or "\0" in text:
        message = f"the outbox table must be named as table or schema.table, not {text!r}"
        raise ConfigurationError(message)
    return TableName(schema or None, name)
