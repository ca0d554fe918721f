"""Recover chained transactions by comparing a table of their records with the destination topics.

Rows are inserted before the first commit and deleted after the second commit, so a crash between the two commits leaves
the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from confluent_kafka import Producer
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from outbox_events.errors import RefusedError
from outbox_events.kafka.record import Record
from outbox_events.producing import stored_record
from outbox_events.producing.database import Connection, wait_until_ended
from outbox_events.producing.deliveries import DELIVERY_S, KafkaTransaction, fence
from outbox_events.producing.errors import NotCommittedError, NotDeliveredError
from outbox_events.producing.stored_record import READ_S, delivered_event_ids
from outbox_events.waiting import Deadline, Observation, wait_for

DEFAULT_TABLE = "public.recovery_store"

# After a crash, PostgreSQL can assign an xid again if no WAL of its transaction was flushed. This statement prevents
# that reuse: its transaction gets a later xid than the business transaction, and its commit flushes the WAL with
# the later xid. After a crash, PostgreSQL continues after that xid. The commit must therefore wait for the flush.
SAVE = sql.SQL(
    "insert into {table} (transaction_id, sender, {columns}) "
    "select %(transaction_id)s::text::xid8, %(sender)s::text, {columns} "
    "from {unnest} with ordinality as record(event_id, topic, partition, key, value, headers, number), "
    "set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'local' "
    "else current_setting('synchronous_commit') end, true) order by number"
)
READ = sql.SQL(
    "select position, transaction_id::text, topic, partition, key, value, headers from {table} "
    "where sender = %s::text order by position"
)
OUTCOMES = sql.SQL("select id::text, pg_xact_status(id) from unnest(%s::text[]::xid8[]) as id")
OPEN_TRANSACTION_HINT = "end the session that runs the transaction: see backend_xid in pg_stat_activity"


def create_table_sql(table: str = DEFAULT_TABLE) -> sql.Composed:
    """Return the statement that creates the table of the recovery store if it does not exist."""
    return sql.SQL(
        "create table if not exists {} (position bigint generated always as identity primary key, "
        "transaction_id xid8 not null, sender text not null, event_id text not null, {}, "
        "unique (transaction_id, event_id))"
    ).format(stored_record.identifier(table), stored_record.COLUMN_DEFINITIONS)


@dataclass(frozen=True)
class SavedRecord:
    """One row: a record, its position in sending order, and the xid of the business transaction."""

    position: int
    transaction_id: str
    record: Record

    @property
    def event_id(self) -> str:
        return stored_record.event_id(self.record)


class RecoveryStore:
    """Table of saved records. Requires a separate connection to the server of the business database.

    `sender` is the transactional.id of the producer. A recovery reads only the rows of the producer that it fences.
    """

    def __init__(self, connection: Connection, sender: str, table: str = DEFAULT_TABLE) -> None:
        """Raises RefusedError unless the connection is in autocommit mode, in which each statement commits."""
        if not connection.autocommit:
            message = "the connection of the recovery store is not in autocommit mode"
            raise RefusedError(message, "open a separate connection with autocommit=True")
        self.connection = connection
        self.sender = sender
        self._table = stored_record.identifier(table)

    def save(self, transaction_id: str, records: Sequence[Record]) -> None:
        """Save a business transaction's records durably. If psycopg raises an error, abort the business transaction."""
        if self.connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            raise RefusedError("the connection of the recovery store has an open transaction", "commit it first")
        values = {"transaction_id": transaction_id, "sender": self.sender, **stored_record.parameters(records)}
        columns, unnest = stored_record.COLUMNS, stored_record.UNNEST
        self._execute(SAVE.format(table=self._table, columns=columns, unnest=unnest), values)

    def forget(self, transaction_id: str) -> None:
        """Delete the rows of a business transaction after both commits."""
        statement = sql.SQL("delete from {} where transaction_id = %s::text::xid8 and sender = %s::text")
        self._execute(statement.format(self._table), [transaction_id, self.sender])

    def forget_records(self, saved: Iterable[SavedRecord]) -> None:
        """Delete rows that the recovery has resolved."""
        statement = sql.SQL("delete from {} where position = any(%s::bigint[])")
        self._execute(statement.format(self._table), [[row.position for row in saved]])

    def read(self) -> list[SavedRecord]:
        """Return the rows of the sender in sending order."""
        with psycopg.Cursor(self.connection, row_factory=tuple_row) as cursor:
            rows = cursor.execute(READ.format(table=self._table), [self.sender]).fetchall()
        return [SavedRecord(position, xid, stored_record.from_row(*columns)) for position, xid, *columns in rows]

    def outcomes(self, transaction_ids: Iterable[str]) -> dict[str, str | None]:
        """Return `in progress`, `committed` or `aborted` for each transaction.

        None means that the transaction is so old that PostgreSQL has removed its status.
        """
        with psycopg.Cursor(self.connection, row_factory=tuple_row) as cursor:
            return dict(cursor.execute(OUTCOMES, [sorted(set(transaction_ids))]).fetchall())

    def _execute(self, statement: sql.Composed, values: dict[str, Any] | list[Any]) -> None:
        with psycopg.Cursor(self.connection) as cursor:
            cursor.execute(statement, values)


@dataclass(frozen=True)
class Recovered:
    """Result of a recovery: counts of records, and the event ids of phantoms.

    `proven`: the record is on its topic, and the database transaction committed. `rolled_back`: the record is not on
    its topic, and the database transaction did not commit. `resent`: the database transaction committed, but the record
    was missing. `phantoms`: the record is on its topic and cannot be withdrawn, but the database transaction did not
    commit. `undecided`: PostgreSQL no longer knows the outcome of an old transaction. Its rows remain.
    """

    proven: int = 0
    rolled_back: int = 0
    resent: int = 0
    undecided: int = 0
    phantoms: tuple[str, ...] = ()


def recover(
    store: RecoveryStore, producer: Producer, settings: Mapping[str, Any], *, seconds: float = READ_S
) -> Recovered:
    """Resolve the rows that crashes left, and return the result. The recovery can be repeated at any time.

    `producer` is a new transactional producer with the transactional.id of the crashed producer. The recovery first
    fences earlier producers, so that a process that is still running cannot commit in Kafka. Then it waits until the
    business transactions of that process have ended, because they could still add rows. `settings` are consumer
    properties of confluent-kafka, at least bootstrap.servers. Raises WaitTimeoutError if a business transaction is
    still open after `seconds`.
    """
    fence(producer, seconds=seconds)
    wait_until_ended(store.connection, store.sender, seconds=seconds)
    saved = store.read()
    outcomes = _wait_for_outcomes(store, saved, Deadline(seconds))
    topics = {row.record.topic for row in saved}
    delivered = delivered_event_ids(settings, topics, {row.event_id for row in saved}, seconds=seconds)
    groups = {key: [row for row in saved if _group(row, outcomes, delivered) == key] for key in GROUPS}
    _resend(producer, groups["resent"])
    store.forget_records(row for key in GROUPS if key != "undecided" for row in groups[key])
    phantoms = tuple(row.event_id for row in groups["phantoms"])
    return Recovered(**{key: len(groups[key]) for key in GROUPS if key != "phantoms"}, phantoms=phantoms)


GROUPS = ("proven", "rolled_back", "resent", "undecided", "phantoms")


def _wait_for_outcomes(store: RecoveryStore, saved: Sequence[SavedRecord], deadline: Deadline) -> dict[str, str | None]:
    """Wait until all business transactions have ended, and return their outcomes."""
    transaction_ids = {row.transaction_id for row in saved}

    def poll() -> Observation[dict[str, str | None]]:
        outcomes = store.outcomes(transaction_ids)
        running = sorted(xid for xid, outcome in outcomes.items() if outcome == "in progress")
        return Observation(None if running else outcomes, f"transactions in progress: {', '.join(running)}")

    if not saved:
        return {}
    subject = "the end of the business transactions"
    return wait_for(subject, poll, seconds=deadline.seconds_left, hint=OPEN_TRANSACTION_HINT)


def _group(row: SavedRecord, outcomes: Mapping[str, str | None], delivered: set[str]) -> str:
    outcome, is_delivered = outcomes[row.transaction_id], row.event_id in delivered
    if outcome is None:
        return "undecided"
    if outcome == "committed":
        return "proven" if is_delivered else "resent"
    return "phantoms" if is_delivered else "rolled_back"


def _resend(producer: Producer, saved: Sequence[SavedRecord], seconds: float = DELIVERY_S) -> None:
    """Send records in one Kafka transaction. After an error, the next recovery determines which records arrived."""
    if not saved:
        return
    transaction = KafkaTransaction(producer, seconds=seconds)
    try:
        for row in saved:
            transaction.send(row.record)
        transaction.flush()
        transaction.commit()
    except (NotDeliveredError, NotCommittedError):
        transaction.abort()
        raise
