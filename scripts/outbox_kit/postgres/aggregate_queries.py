"""Queries on aggregates: their latest rows in the outbox table, and the keys of those that still exist."""

from __future__ import annotations

import re
from typing import LiteralString

from psycopg import errors, sql

from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline import Aggregate, Backfill, Source
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection, Row, read_column_types

QUERY_TIMEOUT_MS = 600_000
# Placeholder for the requested keys in a backfill query. A cast (`x::keys`) is not a placeholder.
KEYS_PLACEHOLDER = re.compile(r"(?<!:):keys\b")

# Per aggregate: the ids of all rows with the latest created_at (the rows of a transaction have the same), and of the
# row with the highest `rank`. `rank` is the column seq, in insertion order, or created_at if the table has no seq. With
# seq the last row is found even if the clock was set back. Rows with an infinite created_at become dead letters.
LATEST_EVENTS: LiteralString = """
    select key, latest as created_at, array_agg(id) as event_ids,
           (array_agg(deleted order by created_at desc, rank desc))[1] as deleted
    from (select {key} as key, {id}::text as id, {created_at} as created_at, {rank} as rank,
                 {is_null} or {event_type} = any(%(tombstones)s) as deleted,
                 max({created_at}) over aggregates as latest, max({rank}) over aggregates as last
          from {table} where {type} = %(type)s and isfinite({created_at})
          window aggregates as (partition by {key})) rows
    where (created_at = latest or rank = last) and latest < now() - make_interval(secs => %(seconds)s)
    group by key, latest"""
# Keys of the existing aggregates. A null payload means that the aggregate is deleted although it has a business row.
LIVE_KEYS = """
    select aggregate_id::text as key from (
    {query}
    ) as aggregates where coalesce(payload::jsonb <> 'null'::jsonb, false)"""
# Conditions under which an outbox row is a deletion. JSON null means a deletion only with `payload: json`.
IS_JSONB_NULL: LiteralString = "coalesce({payload} = 'null'::jsonb, true)"
IS_JSON_NULL: LiteralString = "coalesce({payload}::text ~ '^[ \t\n\r]*null[ \t\n\r]*$', true)"
IS_SQL_NULL: LiteralString = "{payload} is null"


def latest_events(
    connection: Connection, source: Source, aggregate_type: str, aggregate: Aggregate, *, older_than: float
) -> list[Row]:
    """Return key, created_at, event_ids, deleted of each aggregate whose latest row is older than `older_than` seconds.

    `event_ids` are the ids of the rows that may be the latest; `deleted` means that the latest row is a deletion.
    """
    columns, types = source.columns, read_column_types(connection, source.table)
    is_json_null = IS_JSONB_NULL if types.get(columns.payload) == "jsonb" else IS_JSON_NULL
    is_null = is_json_null if aggregate.payload == "json" else IS_SQL_NULL
    query = sql.SQL(LATEST_EVENTS).format(
        key=sql.Identifier(columns.aggregate_id),
        id=sql.Identifier(columns.id),
        type=sql.Identifier(columns.aggregate_type),
        event_type=sql.Identifier(columns.event_type),
        is_null=sql.SQL(is_null).format(payload=sql.Identifier(columns.payload)),
        created_at=sql.Identifier(columns.created_at),
        rank=sql.Identifier("seq" if "seq" in types else columns.created_at),
        table=ddl.qualified_name(source.table),
    )
    with connection.transaction():
        _set_query_timeout(connection)
        parameters = {"type": aggregate_type, "seconds": older_than, "tombstones": aggregate.tombstone_event_types}
        return connection.execute(query, parameters).fetchall()


def live_keys(connection: Connection, backfill: Backfill) -> set[str]:
    """Return the keys of all aggregates for which the backfill query returns a state.

    Raises ConfigurationError if the query refers to a table or column that does not exist.
    """
    key, table = sql.Identifier(backfill.key), ddl.qualified_name(backfill.table)
    all_keys = f"array(select {key.as_string()} from {table.as_string()})"  # noqa: S608 - quoted identifiers
    query = LIVE_KEYS.replace("{query}", KEYS_PLACEHOLDER.sub(lambda _: all_keys, backfill.query.strip().rstrip(";")))
    try:
        with connection.transaction():
            _set_query_timeout(connection)
            # Without parameters, psycopg does not interpret `%` in the query.
            return {row["key"] for row in connection.execute(query.encode()).fetchall()}
    except (errors.UndefinedTable, errors.UndefinedColumn) as error:
        message = f"backfill of table {backfill.table}: {error.diag.message_primary}"
        hint = "correct `table`, `key` and `query` of this `backfill` in the pipeline file"
        raise ConfigurationError(message, hint) from None


def _set_query_timeout(connection: Connection) -> None:
    connection.execute(sql.SQL("set local statement_timeout = {}").format(QUERY_TIMEOUT_MS))
