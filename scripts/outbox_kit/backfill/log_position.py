"""Points of the database's log, in bytes, and who is past them."""

from __future__ import annotations

from typing import LiteralString

from outbox_kit.postgres.client import WRITERS, Connection
from outbox_kit.waiting import Seen, wait_for

SETTLE_TIMEOUT_S = 60
PASS_TIMEOUT_S = 180

SETTLED: LiteralString = """
    select pg_snapshot_xmin(pg_current_snapshot())::text::bigint > %s as settled,
           (pg_current_wal_insert_lsn() - '0/0')::bigint as position"""
CONFIRMED: LiteralString = """
    select (confirmed_flush_lsn - '0/0')::bigint as position from pg_replication_slots where slot_name = %s"""


def settled(connection: Connection) -> int:
    """A position behind which every transaction that is open now has ended. Raises WaitTimeoutError.

    Until then a transaction may still be decoded by the catalog as it was when that transaction began.
    """
    xid = connection.execute("select pg_current_xact_id()::text::bigint as xid").fetchall()[0]["xid"]

    def look() -> Seen[int]:
        row = connection.execute(SETTLED, (xid,)).fetchall()[0]
        writers = ", ".join(f"pid {row['pid']} ({row['seconds']} s)" for row in connection.execute(WRITERS))
        return Seen(row["position"] if row["settled"] else None, f"open: {writers or 'none that writes'}")

    return wait_for(
        "open transactions to end", look, seconds=SETTLE_TIMEOUT_S, hint="end the long ones, then run again"
    )


def wait_passed(connection: Connection, slot: str, position: int, connector: str) -> None:
    """Wait until the reader of `slot` has acknowledged everything up to `position`. Raises WaitTimeoutError."""

    def look() -> Seen[bool]:
        row = connection.execute(CONFIRMED, (slot,)).fetchone()
        confirmed = row["position"] if row else 0
        return Seen(True if confirmed >= position else None, f"the slot is {position - confirmed} bytes short of it")

    wait_for(
        f"connector {connector} to pass position {position} of the log",
        look,
        seconds=PASS_TIMEOUT_S,
        hint="without a heartbeat it moves with the next outbox row: write one; then run the same command again",
    )
