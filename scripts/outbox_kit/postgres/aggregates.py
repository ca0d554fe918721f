"""Aggregates as outbox table and business tables have them; one function per question."""

from __future__ import annotations

import re
from typing import LiteralString

from psycopg import sql

from outbox_kit.pipeline import Backfill, Source
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
                 coalesce({payload} = 'null'::jsonb, true) as gone,
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


def newest_events(connection: Connection, source: Source, aggregate_type: str, *, older_than: float) -> list[Row]:
    """key, created_at, event_ids, gone of each aggregate whose newest outbox row is older than so many seconds.

    `event_ids` are the rows with the newest created_at, and the row that was inserted last.
    """
    columns = source.columns
    has_seq = "seq" in table_columns(connection, source.table)
    query = sql.SQL(NEWEST).format(
        key=sql.Identifier(columns.aggregate_id),
        id=sql.Identifier(columns.id),
        type=sql.Identifier(columns.aggregate_type),
        payload=sql.Identifier(columns.payload),
        created_at=sql.Identifier(columns.created_at),
        rank=sql.Identifier("seq") if has_seq else sql.Identifier(columns.created_at),
        table=sql.Identifier(*source.table.split(".")),
    )
    with connection.transaction():
        _patient(connection)
        return connection.execute(query, {"type": aggregate_type, "seconds": older_than}).fetchall()


def live_keys(connection: Connection, backfill: Backfill) -> set[str]:
    """Keys of all aggregates that the backfill query yields with a state."""
    with connection.transaction():
        _patient(connection)
        # Without values psycopg takes a `%` in the operator's own query as it is.
        return {row["key"] for row in connection.execute(_keys(backfill).encode()).fetchall()}


def _keys(backfill: Backfill) -> str:
    key, table = sql.Identifier(backfill.key), sql.Identifier(*backfill.table.split("."))
    everything = f"array(select {key.as_string()} from {table.as_string()})"  # noqa: S608 - quoted identifiers
    query = KEYS_MARK.sub(lambda _: everything, backfill.query.strip().rstrip(";"))
    return KEYS.replace("{query}", query)


def _patient(connection: Connection) -> None:
    connection.execute(sql.SQL("set local statement_timeout = {}").format(QUERY_TIMEOUT_MS))
