"""Read the state of a replication slot, and wait for slots and transactions. LSNs are integers, in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString

from outbox_events.waiting import Observation, wait_for
from outbox_kit.postgres.client import END_TRANSACTIONS_HINT, OPEN_TRANSACTIONS, Connection, describe_session

RELEASE_TIMEOUT_S = 60
TRANSACTION_TIMEOUT_S = 60
CONFIRM_TIMEOUT_S = 180

# Columns that PostgreSQL 14 does not have are read with to_jsonb, so that the query is valid on all versions.
SLOT: LiteralString = """
    select s.slot_name as name, s.plugin, s.database, s.active, s.active_pid, s.wal_status, s.two_phase,
           (s.confirmed_flush_lsn - '0/0')::bigint as confirmed_flush, (s.restart_lsn - '0/0')::bigint as restart_lsn,
           (to_jsonb(s) ->> 'failover')::bool as failover, to_jsonb(s) ->> 'invalidation_reason' as invalidation_reason,
           (select a.usename from pg_stat_activity a where a.pid = s.active_pid) as reader
    from pg_replication_slots s where s.slot_name = %s"""
RETENTION_LIMIT: LiteralString = """
    select setting::bigint as megabytes from pg_settings where name = 'max_slot_wal_keep_size'"""
TRANSACTIONS_ENDED: LiteralString = """
    select pg_snapshot_xmin(pg_current_snapshot())::text::bigint > %s as ended,
           (pg_current_wal_insert_lsn() - '0/0')::bigint as position"""
# PostgreSQL deletes the statistics of a slot together with the slot.
COUNTERS: LiteralString = """
    select total_txns, total_bytes, stats_reset::text as stats_reset
    from pg_stat_replication_slots where slot_name = %s"""


@dataclass(frozen=True)
class Slot:
    """Row of pg_replication_slots. `reader` is the role of the session that reads the slot."""

    name: str
    plugin: str
    database: str
    active: bool
    active_pid: int | None
    wal_status: str | None
    two_phase: bool
    confirmed_flush: int | None
    restart_lsn: int | None
    failover: bool | None
    invalidation_reason: str | None
    reader: str | None


@dataclass(frozen=True)
class SlotCounters:
    """Decoding statistics of a slot. They decrease only if the slot is recreated or the statistics are reset."""

    total_txns: int
    total_bytes: int
    stats_reset: str | None

    def may_precede(self, later: SlotCounters) -> bool:
        """Return whether `later`, which was read after these counters, can belong to the same slot."""
        return (
            self.stats_reset == later.stats_reset
            and self.total_txns <= later.total_txns
            and self.total_bytes <= later.total_bytes
        )


def read_slot(connection: Connection, name: str) -> Slot | None:
    """Return the slot, or None if it does not exist."""
    row = connection.execute(SLOT, (name,)).fetchone()
    return Slot(**row) if row else None


def read_retention_limit(connection: Connection) -> int | None:
    """Return the number of bytes of WAL that a slot can retain (max_slot_wal_keep_size); None if there is no limit."""
    megabytes: int = connection.execute(RETENTION_LIMIT).fetchall()[0]["megabytes"]
    return None if megabytes < 0 else megabytes << 20


def is_confirmed_by(slot: Slot | None, position: int | None) -> bool:
    """Return whether the slot's reader has confirmed the WAL up to `position`; False if either argument is unknown."""
    if slot is None or slot.confirmed_flush is None or position is None:
        return False
    return slot.confirmed_flush >= position


def read_counters(connection: Connection, name: str) -> SlotCounters | None:
    """Return the statistics of the slot, or None if the slot does not exist."""
    row = connection.execute(COUNTERS, (name,)).fetchone()
    return SlotCounters(**row) if row else None


def wait_inactive(connection: Connection, name: str, *, seconds: float = RELEASE_TIMEOUT_S) -> None:
    """Wait until no session reads the slot. A session can end later than its task. Raises WaitTimeoutError."""

    def poll() -> Observation[bool]:
        slot = read_slot(connection, name)
        active = slot is not None and slot.active
        return Observation(
            None if active else True, f"active, pid {slot.active_pid}" if slot and active else "not active"
        )

    hint = "check in pg_stat_replication whether another client reads the slot"
    wait_for(f"slot {name} to be released", poll, seconds=seconds, hint=hint)


def wait_confirmed(connection: Connection, name: str, position: int, connector: str) -> None:
    """Wait until `connector` has confirmed its slot up to LSN `position` or beyond. Raises WaitTimeoutError."""

    def poll() -> Observation[bool]:
        slot = read_slot(connection, name)
        remaining_bytes = position - ((slot.confirmed_flush if slot else None) or 0)
        return Observation(True if remaining_bytes <= 0 else None, f"{remaining_bytes} bytes are not confirmed")

    hint = "check that the connector runs; if it has no heartbeats, write an outbox row; then run the command again"
    wait_for(f"connector {connector} to confirm WAL position {position}", poll, seconds=CONFIRM_TIMEOUT_S, hint=hint)


def wait_transactions_ended(connection: Connection) -> int:
    """Wait until all writing transactions that are open at the call have ended, and return the current LSN.

    A transaction that began before a catalog change can be decoded without that change. Raises WaitTimeoutError.
    """
    xid = connection.execute("select pg_current_xact_id()::text::bigint as xid").fetchall()[0]["xid"]

    def poll() -> Observation[int]:
        row = connection.execute(TRANSACTIONS_ENDED, (xid,)).fetchall()[0]
        sessions = ", ".join(describe_session(row) for row in connection.execute(OPEN_TRANSACTIONS))
        return Observation(row["position"] if row["ended"] else None, f"open: {sessions or 'no writing transaction'}")

    return wait_for("open transactions to end", poll, seconds=TRANSACTION_TIMEOUT_S, hint=END_TRANSACTIONS_HINT)
