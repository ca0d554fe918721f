"""Where slot and server stand in the WAL, and what a slot would send; one function per question."""

from __future__ import annotations

from typing import LiteralString

import psycopg
from psycopg import sql

from outbox_kit.pipeline import Source
from outbox_kit.postgres import slot_changes
from outbox_kit.postgres.client import Connection, Row

COUNT_TIMEOUT_MS = 60_000

POSITIONS: LiteralString = """
    select s.active, s.active_pid, s.wal_status,
           (s.confirmed_flush_lsn - '0/0')::bigint as confirmed_flush, (s.restart_lsn - '0/0')::bigint as restart,
           (pg_current_wal_lsn() - '0/0')::bigint as server
    from (select 1) one left join pg_replication_slots s on s.slot_name = %s"""


def positions(connection: Connection, slot: str) -> Row:
    """server (bytes) and, None where there is no such slot: active, wal_status, confirmed_flush, restart (bytes)."""
    return connection.execute(POSITIONS, (slot,)).fetchall()[0]


def undelivered_rows(connection: Connection, source: Source, *, after: int, upto: int) -> int | None:
    """How many events, rows or messages, of transactions that were committed between two positions (bytes) the slot
    holds. Peeking moves nothing, and only one can read a slot at a time.

    None where they cannot be counted: the slot is in use, or it takes longer than a minute.
    """
    values = {**slot_changes.values(source), "after": after, "upto": upto}
    try:
        with connection.transaction():
            connection.execute(sql.SQL("set local statement_timeout = {}").format(COUNT_TIMEOUT_MS))
            row = connection.execute(slot_changes.COMMITTED_EVENTS, values).fetchone()
    except (psycopg.errors.ObjectInUse, psycopg.errors.QueryCanceled, psycopg.errors.InsufficientPrivilege):
        return None
    return int(row["rows"]) if row else None
