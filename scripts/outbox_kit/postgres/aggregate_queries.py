"""Aggregates as outbox table and business tables have them; one function per question."""

from __future__ import annotations

import re
from typing import LiteralString

from psycopg import errors, sql

from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline import Aggregate, Backfill, Source
from outbox_kit.postgres.client import Connection, Row, table_columns

QUERY_TIMEOUT_MS = 600_000
# In a backfill query: the keys that it is to yield. Not the second colon of a cast (`x::keys`).
KEYS_MARK = re.compile(r"(?<!:):keys\b")

# Rows of one transaction share created_at, so each of them is named. `rank` is seq, the insertion order of one
# writer: within a transaction it tells the last row; a clock that was set back is no reason to miss the newest row.
# Times that are not finite never arrive on a topic: such rows are dead letters.
NEWEST: LiteralString = """
    select key, newest as created_at, array_agg(id) as event_ids,
           (array_agg(gone order by created_at desc, rank desc))[1] as gone
    from (select {key} as key, {id}::text as id, {created_at} as created_at, {rank} as rank,
                 {null} or {event_type} = any(%(ended)s) as gone,
                 max({created_at}) over aggregates as newest, max({rank}) over aggregates as last
          from {table} where {type} = %(type)s and isfinite({created_at})
          window aggregates as (partition by {key})) rows
    where (created_at = newest or rank = last) and newest < now() - make_interval(secs => %(seconds)s)
    group by key, newest"""
# A payload of null says that the aggregate is gone, though its row is still there.
KEYS = """
    select aggregate_id::text as key from (
    {query}
    ) as aggregates where coalesce(payload::jsonb <> 'null'::jsonb, false)"""


# A payload that says that the aggregate is gone. JSON null counts only where JSON is what is expected.
JSONB_NULL: LiteralString = "coalesce({payload} = 'null'::jsonb, true)"
JSON_NULL: LiteralString = "coalesce({payload}::text ~ '^[ \t\n\r]*null[ \t\n\r]*$', true)"
SQL_NULL: LiteralString = "{payload} is null"


def newest_events(
    connection: Connection, source: Source, aggregate_type: str, aggregate: Aggregate, *, older_than: float
) -> list[Row]:
    """key, created_at, event_ids, gone of each aggregate whose newest outbox row is older than so many seconds.

    `event_ids` are the rows with the newest created_at, and the row that was inserted last.
    """
    columns, types = source.columns, table_columns(connection, source.table)
    has_seq = "seq" in types
    json_null = JSONB_NULL if types.get(columns.payload) == "jsonb" else JSON_NULL
    null = json_null if aggregate.payload == "json" else SQL_NULL
    query = sql.SQL(NEWEST).format(
        key=sql.Identifier(columns.aggregate_id),
        id=sql.Identifier(columns.id),
        type=sql.Identifier(columns.aggregate_type),
        event_type=sql.Identifier(columns.event_type),
        null=sql.SQL(null).format(payload=sql.Identifier(columns.payload)),
        created_at=sql.Identifier(columns.created_at),
        rank=sql.Identifier("seq") if has_seq else sql.Identifier(columns.created_at),
        table=sql.Identifier(*source.table.split(".")),
    )
    with connection.transaction():
        _patient(connection)
        values = {"type": aggregate_type, "seconds": older_than, "ended": aggregate.tombstone_event_types}
        return connection.execute(query, values).fetchall()


def live_keys(connection: Connection, backfill: Backfill) -> set[str]:
    """Keys of all aggregates that the backfill query yields with a state.

    Raises ConfigurationError for a table or column that is not there.
    """
    try:
        with connection.transaction():
            _patient(connection)
            # Without values psycopg takes a `%` in the operator's own query as it is.
            return {row["key"] for row in connection.execute(_keys(backfill).encode()).fetchall()}
    except (errors.UndefinedTable, errors.UndefinedColumn) as error:
        message = f"the `backfill` of table {backfill.table}: {error.diag.message_primary}"
        raise ConfigurationError(
            message, "correct table, key and query of that `backfill` in the pipeline file, or take it out"
        ) from None


def _keys(backfill: Backfill) -> str:
    key, table = sql.Identifier(backfill.key), sql.Identifier(*backfill.table.split("."))
    everything = f"array(select {key.as_string()} from {table.as_string()})"  # noqa: S608 - quoted identifiers
    query = KEYS_MARK.sub(lambda _: everything, backfill.query.strip().rstrip(";"))
    return KEYS.replace("{query}", query)


def _patient(connection: Connection) -> None:
    connection.execute(sql.SQL("set local statement_timeout = {}").format(QUERY_TIMEOUT_MS))
