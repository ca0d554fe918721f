"""Takes down what apply made in the source database; never the table, whose rows are the service's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

from outbox_kit.errors import RejectedError
from outbox_kit.pipeline import Source
from outbox_kit.postgres import client, slot_changes
from outbox_kit.waiting import Seen, wait_for

GIVEN_UP_SECONDS = 60
# Longer than the 30 s of every other statement: a slot that nobody read for days holds days of WAL.
PEEK_TIMEOUT_MS = 600_000
UNDELIVERED: LiteralString = (
    slot_changes.COMMITTED_EVENTS
    + """
      -- Of a transaction that was begun, rows before the connector's position have gone. COPY gives several rows one
      -- position: at it, some may have.
      and not (entry.xid = %(xid)s and entry.lsn < '0/0'::pg_lsn + %(lsn)s::numeric)"""
)


@dataclass(frozen=True)
class Delivered:
    """How far a connector has come, in bytes of WAL: the last commit, and the row of a transaction begun after it."""

    commit: int = 0
    lsn: int = 0
    xid: str = ""


def wait_given_up(connection: client.Connection, slot: str) -> None:
    """Wait until nobody reads the slot. Raises WaitTimeoutError."""

    def look() -> Seen[bool]:
        row = client.slot(connection, slot)
        active = row is not None and row["active"]
        return Seen(None if active else True, "somebody reads it")

    wait_for(
        f"slot {slot!r} to be given up", look, seconds=GIVEN_UP_SECONDS, hint="see pg_replication_slots.active_pid"
    )


def undelivered_rows(connection: client.Connection, source: Source, delivered: Delivered) -> int:
    """Events in the slot's WAL that were not `delivered`, rows or messages; the slot stays as it is.

    Only a slot that nobody reads can be looked into. Reads all WAL that the slot holds. Raises RejectedError where
    that takes longer than PEEK_TIMEOUT_MS.
    """
    values = {
        **slot_changes.values(source),
        "upto": None,
        "after": delivered.commit,
        "xid": delivered.xid,
        "lsn": delivered.lsn,
    }
    try:
        with connection.transaction():
            connection.execute(sql.SQL("set local statement_timeout = {}").format(PEEK_TIMEOUT_MS))
            return int(connection.execute(UNDELIVERED, values).fetchall()[0]["rows"])
    except psycopg.errors.QueryCanceled:
        raise RejectedError(
            f"the WAL of slot {source.slot!r} was not read to its end within {PEEK_TIMEOUT_MS // 1000} s: whether it "
            "holds events that were not delivered is not known",
            "let the connector deliver first (`outbox status`); or lose what it holds: --drop-slot",
        ) from None


def drop_slot(connection: client.Connection, slot: str) -> None:
    """Drop a slot that nobody reads."""
    connection.execute("select pg_drop_replication_slot(%s)", (slot,))


def drop_publication(connection: client.Connection, name: str) -> None:
    connection.execute(sql.SQL("drop publication {}").format(sql.Identifier(name)))
