"""Resend outbox rows whose delivery no topic proves, in their original order, before the connector starts.

A row is sent again by deleting it and inserting it with the same event id, because the connector reads only inserts.
The table is locked against writers while rows are sent again. Every row that was committed before the lock is then
either proven or sent again, so the slot can advance to the lock's WAL position. No row is sent twice or out of order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import LiteralString

import psycopg
from psycopg import sql

from outbox_events.contract import lsn
from outbox_events.errors import RejectedError
from outbox_events.text import plural
from outbox_kit.delivery.outbox_rows import OutboxSnapshot, StoredRow, has_seq
from outbox_kit.delivery.proof import Proof, ProofReader
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import Lock, Source
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import ddl
from outbox_kit.postgres.aggregate_queries import QUERY_TIMEOUT_S, refuse_row_security
from outbox_kit.postgres.client import Connection
from outbox_kit.recovery.slot_events import peek_event_ids
from outbox_kit.results import Reporter

LOCK_TIMEOUT_S = 10
LOCK: LiteralString = "lock table {table} in share row exclusive mode"
# Generated values, such as seq, are generated again, so that the row becomes newer than all other rows.
COLUMNS: LiteralString = """
    select attname as name from pg_attribute
    where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped and attidentity = '' and attgenerated = ''
      and attname <> 'seq' order by attnum"""
# The sort reads all deleted rows before the first insert, so no event id exists twice.
MOVE: LiteralString = """
    with moved as (delete from {table} as event where {id} = any(%s::uuid[]) returning event.*{place})
    insert into {table} ({columns}) select {columns} from moved order by {insertion_order}"""
ADVANCE: LiteralString = "select pg_replication_slot_advance(%s, '0/0'::pg_lsn + %s::numeric)"


@dataclass
class ResentRows:
    """Number of outbox rows of each aggregate type that were `delivered` before the loss, or `resent`.

    `without_row` is the number of events that the new slot retains and whose rows were deleted. `undone` maps each type
    to the number of newest records whose rows are missing although older rows remain.
    """

    delivered: Counter[str] = field(default_factory=Counter)
    resent: Counter[str] = field(default_factory=Counter)
    ids: list[str] = field(default_factory=list)
    delivered_ids: set[str] = field(default_factory=set)
    without_row: int = 0
    undone: Counter[str] = field(default_factory=Counter)

    def add(self, rows: Sequence[StoredRow], proof: Proof) -> None:
        """Add the rows of one aggregate. `rows` must be in insertion order."""
        for row, is_proven in zip(rows, proof.proven(rows), strict=True):
            (self.delivered if is_proven else self.resent)[row.aggregate_type] += 1
            if is_proven:
                self.delivered_ids.add(row.id)
            else:
                self.ids.append(row.id)

    def count_undone(self, proofs: Mapping[str, Proof]) -> None:
        """Count the newest records whose rows a restore has undone: they are missing although older rows remain."""
        for name, proof in proofs.items():
            has_row = {record.version: record.event_id in self.delivered_ids for record in proof.latest.values()}
            oldest = min((version for version, found in has_row.items() if found), default=None)
            if oldest is not None:
                self.undone[name] = sum(version > oldest and not found for version, found in has_row.items())


def resend_rows(deployment: Deployment, lock: Lock, progress: Reporter) -> ResentRows:
    """Insert again those rows whose delivery no topic proves. The connector must be stopped, and the slot must exist.

    Raises UnreachableError and WaitTimeoutError. Raises RejectedError if locking the table exceeds LOCK_TIMEOUT_S.
    """
    source = deployment.pipeline.source
    with (
        postgres_client.connected(deployment.environment.source) as connection,
        postgres_client.connected(deployment.environment.source) as reader,
    ):
        proofs = _read_proofs(deployment, reader, lock, progress)
        rows, position = _move_rows(connection, source, proofs)
        _advance_slot(connection, source, rows, position, progress)
    return rows


def _read_proofs(deployment: Deployment, connection: Connection, lock: Lock, progress: Reporter) -> dict[str, Proof]:
    """Read the proofs from the topics. The connector is stopped, so it cannot add records meanwhile."""
    position = postgres_client.read_insert_position(connection) or 0
    reader, proofs = ProofReader(deployment, connection, position, lock.source_epoch), {}
    for name in deployment.pipeline.routed:
        progress(f"read topic {deployment.pipeline.topic_of(name)}")
        proofs[name] = reader.of_type(name)
    proofs[""] = reader.of_type("")  # a type that is not routed: only a dead letter proves its rows
    return proofs


def _move_rows(connection: Connection, source: Source, proofs: dict[str, Proof]) -> tuple[ResentRows, int]:
    """Move the unproven rows to the end of the table. Return all rows, and the WAL position of the lock."""
    rows = ResentRows()
    with locked_outbox(connection, source, "outbox recover") as position:
        for aggregate in OutboxSnapshot(connection, source, position).aggregates(older_than=0):
            rows.add(aggregate, proofs.get(aggregate[0].aggregate_type, proofs[""]))
        rows.count_undone(proofs)
        move_to_end(connection, source, rows.ids)
    return rows, position


@contextmanager
def locked_outbox(connection: Connection, source: Source, command: str) -> Iterator[int]:
    """Open a transaction that locks the outbox table against writers. Yield the WAL position of the lock.

    If the lock is not granted within LOCK_TIMEOUT_S, raises a RejectedError whose hint is to run `command` again.
    """
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    try:
        with connection.transaction():
            for name, seconds in (("lock_timeout", LOCK_TIMEOUT_S), ("statement_timeout", QUERY_TIMEOUT_S)):
                connection.execute(sql.SQL("set local {} = {}").format(sql.Identifier(name), seconds * 1000))
            refuse_row_security(connection)
            connection.execute(sql.SQL(LOCK).format(table=ddl.qualified_name(source.table)))
            yield postgres_client.read_insert_position(connection) or 0
    except psycopg.errors.LockNotAvailable:
        raise RejectedError(
            f"no lock on {source.table} within {LOCK_TIMEOUT_S} s, because an open transaction has written to it",
            f"end the oldest transaction in pg_stat_activity, then run `{command}` again",
        ) from None


def move_to_end(connection: Connection, source: Source, event_ids: Sequence[str]) -> None:
    """Delete rows and insert them again, in their original order and with the same event ids."""
    if not event_ids:
        return
    is_numbered = has_seq(connection, source)
    statement = sql.SQL(MOVE).format(
        table=ddl.qualified_name(source.table),
        id=sql.Identifier(source.columns.id),
        place=sql.SQL("" if is_numbered else ", age(event.xmin) as outbox_kit_age, event.ctid as outbox_kit_place"),
        columns=sql.SQL(", ").join(map(sql.Identifier, written_columns(connection, source))),
        insertion_order=sql.SQL("seq nulls first" if is_numbered else "outbox_kit_age desc, outbox_kit_place"),
    )
    connection.execute(statement, (list(event_ids),))


def written_columns(connection: Connection, source: Source) -> list[str]:
    """Return the columns that an insert writes: all columns except generated columns and `seq`."""
    return [row["name"] for row in connection.execute(COLUMNS, (ddl.quoted_text(source.table),))]


def _advance_slot(connection: Connection, source: Source, rows: ResentRows, position: int, progress: Reporter) -> None:
    """Advance the slot to `position`, unless it retains an event that is neither delivered nor sent again.

    The row of such an event was deleted from the table. If the slot is not advanced, some rows may be sent twice.
    """
    event_ids = peek_event_ids(connection, source, upto=position)
    if event_ids is None:
        progress(
            f"cannot determine which rows slot {source.slot} retains: it is not advanced, so some rows may arrive twice"
        )
        return
    rows.without_row = len(event_ids - rows.delivered_ids - set(rows.ids))
    if rows.without_row:
        events = plural(rows.without_row, "event")
        progress(f"slot {source.slot} retains {events} without an outbox row: some rows may arrive twice")
        return
    connection.execute(ADVANCE, (source.slot, position))
    progress(f"slot {source.slot} starts at {lsn.format_lsn(position)}")
