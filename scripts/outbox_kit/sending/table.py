"""The name of the outbox table, as a service writes it in its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from outbox_kit.errors import ConfigurationError

DEFAULT_TABLE = "public.outbox_event"


@dataclass(frozen=True)
class TableName:
    """The parts of a table's name, unquoted; schema None leaves the table to the search_path."""

    schema: str | None
    name: str


@lru_cache(maxsize=64)
def parse_table(text: str) -> TableName:
    """Read `schema.table` or `table`; the parts are taken letter by letter and quoted when used."""
    schema, dot, name = text.rpartition(".")
    if not name or "." in schema or bool(schema) != bool(dot) or "\0" in text:
        message = f"the outbox table must be named as table or schema.table, not {text!r}"
        raise ConfigurationError(message)
    return TableName(schema or None, name)
