"""Where slot and server stand in the WAL, and what a slot would send; one function per question."""

from __future__ import annotations

from typing import LiteralString

import psycopg
from psycopg import sql

from outbox_kit.pipeline import Source
from outbox_kit.postgres import peeking
from outbox_kit.postgres.client import Connection, Row

COUNT_TIMEOUT_MS = 60_000

POSITIONS: LiteralString = """
    select s.active, s.active_pid, s.wal_status,
           (s.confirmed_flush_lsn - '0/0')::bigint as confirmed_flush, (s.restart_lsn - '0/0')::bigint as restart,
           (pg_current_wal_lsn() - '0/0')::bigint as server
    from (select 1) one left join pg_replication_slots s on s.slot_name = %s"""
# Peeking reads the WAL from the slot's position on and moves nothing; only one reader of a slot at a time.
EVENTS: LiteralString = (
    """
    select count(*) filter (where lsn > '0/0'::pg_lsn + %(after)s::numeric) as rows
    from pg_logical_slot_peek_binary_changes(%(slot)s, '0/0'::pg_lsn + %(upto)s::numeric, null, """  # noqa: S608
    + peeking.OPTIONS
    + ") where "
    + peeking.IS_EVENT
)


def positions(connection: Connection, slot: str) -> Row:
    """server (bytes) and, None where there is no such slot: active, wal_status, confirmed_flush, restart (bytes)."""
    return connection.execute(POSITIONS, (slot,)).fetchall()[0]


def undelivered_rows(connection: Connection, source: Source, *, after: int, upto: int) -> int | None:
    """How many events, rows or messages, the slot holds between two positions (bytes), nobody reading it meanwhile.

    None where they cannot be counted: the slot is in use, or it takes longer than a minute.
    """
    values = {**peeking.values(source), "after": after, "upto": upto}
    try:
        with connection.transaction():
            connection.execute(sql.SQL("set local statement_timeout = {}").format(COUNT_TIMEOUT_MS))
            row = connection.execute(EVENTS, values).fetchone()
    except (psycopg.errors.ObjectInUse, psycopg.errors.QueryCanceled, psycopg.errors.InsufficientPrivilege):
        return None
    return int(row["rows"]) if row else None
