"""Check of the outbox table's columns. A row of a wrong type would become a tombstone, or be sent forever."""

from __future__ import annotations

from typing import LiteralString

from outbox_kit.errors import ConfigurationError
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection
from outbox_kit.relay.rows import JSON_TYPES, additional_columns, without_modifier
from outbox_kit.relay.tables import RelayTables

TEXT_TYPES = (*JSON_TYPES, "text", "character varying")
NULLABLE: LiteralString = """
    select 1 from pg_attribute where attrelid = to_regclass(%s) and attname = %s and not attnotnull"""


def require_columns(connection: Connection, tables: RelayTables, types: dict[str, str]) -> None:
    """Raise ConfigurationError if a column is missing or has a type that the relay cannot send."""
    source = tables.pipeline.source
    names = source.columns.model_dump()
    optional = names.pop("headers")
    for name in [*names.values(), *additional_columns(tables.pipeline)]:
        if name not in types:
            raise _wrong(tables, f"has no column {name}")
    payload = without_modifier(types[source.columns.payload])
    if tables.pipeline.payload_type == "bytea":
        if payload != "bytea":
            raise _wrong(tables, f"has a column {source.columns.payload} of type {payload}; it must be bytea")
    elif payload not in TEXT_TYPES:
        raise _wrong(tables, f"has a column {source.columns.payload} of type {payload}; it must be jsonb, json or text")
    headers = without_modifier(types.get(optional, "jsonb"))
    if headers not in TEXT_TYPES:
        raise _wrong(tables, f"has a column {optional} of type {headers}; it must be jsonb, json or text")
    if not types[source.columns.created_at].startswith("timestamp"):
        raise _wrong(tables, f"has a column {source.columns.created_at} that is neither timestamptz nor timestamp")
    if types[source.columns.id] != "uuid" or _is_nullable(connection, tables):
        raise _wrong(tables, f"has a column {source.columns.id} that is not uuid not null, so rows cannot be deleted")


def _is_nullable(connection: Connection, tables: RelayTables) -> bool:
    parameters = (ddl.quoted_text(tables.outbox_name), tables.pipeline.source.columns.id)
    return connection.execute(NULLABLE, parameters).fetchone() is not None


def _wrong(tables: RelayTables, problem: str) -> ConfigurationError:
    return ConfigurationError(f"table {tables.outbox_name} {problem}", "correct the table, or source in the pipeline")
