"""Store ids of processed events in a table. An event's id is inserted before its effects, in the same transaction.

Because the id is inserted first, a second process with the same event waits for the first process. If the first one
commits, the event is a duplicate for the second. If the first one rolls back, the second applies it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from outbox_events.errors import RefusedError, WaitTimeoutError
from outbox_events.receiving.retries import sqlstate
from outbox_events.receiving.strategies.database import composed, execute
from outbox_events.sending.psycopg_writer import refuse_autocommit

if TYPE_CHECKING:
    from outbox_events.sending.emit import SyncConnection

DEFAULT_TABLE = "public.processed_event"
WAIT = "30s"
"""Limit (lock_timeout) of each wait for another transaction, unless the connection sets lock_timeout."""
LOCK_NOT_AVAILABLE = "55P03"
# Sorted, so that two processes with the same events cannot deadlock. Each CTE depends on the rows of the previous one,
# so lock_timeout is set before the first insert and restored after the last insert.
CLAIM = """
    with setting as materialized (select current_setting('lock_timeout') as before),
    changed as materialized (
        select set_config('lock_timeout', case before when '0' then {wait} else before end, true) from setting),
    claimed as (
        insert into {table} (consumer_group, event_id)
        select cast({group} as text), id from changed, unnest(cast({ids} as text[])) as id order by id
        on conflict do nothing returning event_id)
    select array_agg(event_id), set_config('lock_timeout', (select before from setting), true) from claimed"""
UNCLAIM = """
    delete from {table} where consumer_group = cast({group} as text) and event_id = any(cast({ids} as text[]))"""
RESPOND = """
    update {table} set response = cast({response} as bytea)
    where consumer_group = cast({group} as text) and event_id = cast({id} as text) returning event_id"""
RESPONSE = """
    select response from {table} where consumer_group = cast({group} as text) and event_id = cast({id} as text)"""


def claim(
    connection: SyncConnection, group: str, event_ids: Collection[str], *, table: str = DEFAULT_TABLE
) -> set[str]:
    """Insert the ids in the open transaction. Return the ids that this group had not processed before.

    `connection` is a psycopg 3 Connection, or a SQLAlchemy 2 Connection or Session. Waits for other transactions that
    have inserted one of the ids. Raises RefusedError if the ids would be committed separately, and WaitTimeoutError if
    another transaction does not end within the connection's lock_timeout (30 s if it is not set).
    """
    with _limited_wait(table):
        ((claimed, _),) = execute(connection, CLAIM, table, group=group, ids=list(event_ids), wait=WAIT)
    return set(claimed or ())


async def claim_async(
    connection: psycopg.AsyncConnection[Any], group: str, event_ids: Collection[str], *, table: str = DEFAULT_TABLE
) -> set[str]:
    """Insert the ids as `claim` does, through psycopg's AsyncConnection.

    For SQLAlchemy's AsyncSession, use `await session.run_sync(claim, group, event_ids)`.
    """
    refuse_autocommit(connection)
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        values = {"group": group, "ids": list(event_ids), "wait": WAIT}
        with _limited_wait(table):
            await cursor.execute(composed(CLAIM, table, tuple(values)), values)
        ((claimed, _),) = await cursor.fetchall()
    return set(claimed or ())


@contextmanager
def _limited_wait(table: str) -> Iterator[None]:
    """Raise WaitTimeoutError if a wait for another transaction exceeds lock_timeout."""
    try:
        yield
    except Exception as error:
        if sqlstate(error) == LOCK_NOT_AVAILABLE:
            message = f"another transaction has inserted the id of an event into {table}, or has locked the table"
            raise WaitTimeoutError(message, "find it with pg_blocking_pids(), and end it") from error
        raise


def unclaim(connection: SyncConnection, group: str, event_ids: Collection[str], *, table: str = DEFAULT_TABLE) -> None:
    """Delete ids whose events were not applied."""
    execute(connection, UNCLAIM, table, group=group, ids=list(event_ids))


def store_response(
    connection: SyncConnection, group: str, event_id: str, response: bytes, *, table: str = DEFAULT_TABLE
) -> None:
    """Store the response to a claimed event in the same transaction, so that duplicates get the same response.

    Raises RefusedError if the group has not claimed `event_id`.
    """
    if not execute(connection, RESPOND, table, group=group, id=event_id, response=response):
        message = f"group {group} has not claimed the event, so its response cannot be stored"
        raise RefusedError(message, "pass the id that ProcessedEvents.id_of(event) returns")


def response(connection: SyncConnection, group: str, event_id: str, *, table: str = DEFAULT_TABLE) -> bytes | None:
    """Return the stored response to a processed event, or None if no response was stored."""
    rows = execute(connection, RESPONSE, table, group=group, id=event_id)
    return bytes(rows[0][0]) if rows and rows[0][0] is not None else None


def create_table_sql(table: str = DEFAULT_TABLE, *, shards: int = 1) -> sql.Composed:
    """Return the statements that create the table if it does not exist, with `shards` hash partitions by event id.

    With several shards, VACUUM processes a very large table in parts; claims take as long as with one
    (docs/performance-services.md). The autovacuum setting triggers a vacuum after each daily `expire`, so that new ids
    reuse the space of deleted ids.
    """
    name, storage = sql.Identifier(*table.split(".")), sql.SQL("with (autovacuum_vacuum_scale_factor = 0.05)")
    whole = sql.SQL(
        "create table if not exists {} (consumer_group text not null, event_id text not null, "
        "processed_at timestamptz not null default now(), response bytea, primary key (event_id, consumer_group)) {}"
    )
    if shards == 1:
        return whole.format(name, storage)
    *schema, base = table.split(".")
    parts = [
        sql.SQL("create table if not exists {} partition of {} for values with (modulus {}, remainder {}) {}").format(
            sql.Identifier(*schema, f"{base}_{number}"), name, sql.Literal(shards), sql.Literal(number), storage
        )
        for number in range(shards)
    ]
    return sql.SQL("; ").join([whole.format(name, sql.SQL("partition by hash (event_id)")), *parts])
