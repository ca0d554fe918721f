"""Recover chained transactions by comparing a table of their records with the destination topics.

Rows are inserted before the first commit and deleted after the second commit, so a crash between the two commits leaves
the rows. A row names the database whose transaction ids it contains, because they mean nothing in a copy of the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer
from psycopg import sql
from psycopg.pq import TransactionStatus

from outbox_events.errors import RefusedError
from outbox_events.kafka.record import Record
from outbox_events.producing import stored_record
from outbox_events.producing.database import Connection, has_open_statement, rows_of
from outbox_events.producing.delivered import READ_S, Found, compacted_topics, find_delivered
from outbox_events.producing.deliveries import DELIVERY_S, KafkaTransaction, fence
from outbox_events.producing.errors import NotDeliveredError
from outbox_events.producing.locks import locked, recovery_lock, sending_lock, wait_until_ended
from outbox_events.producing.stored_record import DELETE_DELIVERED, Recovered
from outbox_events.waiting import Deadline, Observation, wait_for

DEFAULT_TABLE = "public.recovery_store"
DATABASE = sql.SQL(
    "(select system_identifier || '/' || oid from pg_control_system(), pg_database where datname = current_database())"
)
"""Identity of a database, in which transaction ids are valid. A standby has the same identity after a failover."""

# After a crash, PostgreSQL can assign an xid again if no WAL of its transaction was flushed. This statement prevents
# that reuse: its transaction gets a later xid than the business transaction, and its commit flushes the WAL with
# the later xid. After a crash, PostgreSQL continues after that xid. The commit must therefore wait for the flush.
SAVE = sql.SQL(
    "insert into {table} (transaction_id, sender, database, {columns}) "
    "select %(transaction_id)s::text::xid8, %(sender)s::text, {database}, {columns} "
    "from {unnest}, set_config('synchronous_commit', case current_setting('synchronous_commit') "
    "when 'off' then 'local' else current_setting('synchronous_commit') end, true) order by number"
)
READ = sql.SQL(
    "select position, case when database = {database} then transaction_id::text end, "
    "extract(epoch from created_at)::float8, topic, partition, key, value, headers from {table} "
    "where sender = %s::text order by position"
)
# A newer row is also one of a transaction that has committed in the database but not yet in Kafka.
SUPERSEDED = sql.SQL(
    "select older.position from {table} as older left join {table} as newer on newer.topic = older.topic "
    "and newer.key = older.key and newer.position > older.position and newer.database = {database} "
    "where older.position = any(%s::bigint[]) group by older.position having bool_or(older.is_superseded "
    "or coalesce(pg_xact_status(newer.transaction_id) = 'committed', false))"
)
OUTCOMES = sql.SQL("select id::text, pg_xact_status(id) from unnest(%s::text[]::xid8[]) as id")
OPEN_TRANSACTION_HINT = "end the session that runs the transaction: see backend_xid in pg_stat_activity"


def create_table_sql(table: str = DEFAULT_TABLE) -> sql.Composed:
    """Return the statement that creates the table of the recovery store if it does not exist."""
    return sql.SQL(
        "create table if not exists {} (position bigint generated always as identity primary key, "
        "transaction_id xid8 not null, sender text not null, database text not null, event_id text not null, {}, "
        "unique (transaction_id, event_id))"
    ).format(stored_record.identifier(table), stored_record.COLUMN_DEFINITIONS)


@dataclass(frozen=True)
class SavedRecord:
    """One row: a record, its position in sending order, the xid of the business transaction, and a Unix time.

    `transaction_id` is None if the row was saved in another database, for example before a restore from a dump.
    """

    position: int
    transaction_id: str | None
    saved_at: float
    record: Record

    @property
    def event_id(self) -> str:
        return stored_record.event_id(self.record)


class RecoveryStore:
    """Table of saved records. Requires a separate connection to the business database.

    `sender` is the transactional.id of the producer. A recovery reads only the rows of the producer that it fences.
    """

    def __init__(self, connection: Connection, sender: str, table: str = DEFAULT_TABLE) -> None:
        """Raises RefusedError unless the connection is in autocommit mode, in which each statement commits."""
        if not connection.autocommit:
            message = "the connection of the recovery store is not in autocommit mode"
            raise RefusedError(message, "open a separate connection with autocommit=True")
        self.connection = connection
        self.sender = sender
        self.recovery_lock, self.sending_lock = recovery_lock(table, sender), sending_lock(table)
        self._table = stored_record.identifier(table)

    def save(self, transaction_id: str, records: Sequence[Record]) -> None:
        """Save a business transaction's records durably. If psycopg raises an error, abort the business transaction."""
        is_open = self.connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)
        if is_open or has_open_statement(self.connection):
            message = "the connection of the recovery store has an open transaction, pipeline or statement"
            raise RefusedError(message, "use the connection only for the store")
        values = {"transaction_id": transaction_id, "sender": self.sender, **stored_record.parameters(records)}
        self._execute(SAVE, values, columns=stored_record.COLUMNS, unnest=stored_record.UNNEST, database=DATABASE)

    def forget(self, transaction_id: str) -> None:
        """Delete the rows of a business transaction after both commits, and mark the older rows of their keys."""
        condition = sql.SQL("transaction_id = %s::text::xid8 and sender = %s::text")
        self._execute(DELETE_DELIVERED, [transaction_id, self.sender], condition=condition)

    def forget_delivered(self, saved: Iterable[SavedRecord]) -> None:
        """Delete the rows of delivered records, and mark the older rows of their keys."""
        condition = sql.SQL("position = any(%s::bigint[])")
        self._execute(DELETE_DELIVERED, [[row.position for row in saved]], condition=condition)

    def forget_undelivered(self, saved: Iterable[SavedRecord]) -> None:
        """Delete rows of transactions that did not commit."""
        statement = sql.SQL("delete from {table} where position = any(%s::bigint[])")
        self._execute(statement, [[row.position for row in saved]])

    def read(self) -> list[SavedRecord]:
        """Return the rows of the sender in sending order."""
        rows = self._execute(READ, [self.sender], database=DATABASE)
        return [
            SavedRecord(position, xid, at, stored_record.from_row(*columns)) for position, xid, at, *columns in rows
        ]

    def superseded(self, saved: Iterable[SavedRecord]) -> set[int]:
        """Return the positions of those rows whose key has a newer record that was sent or will be sent."""
        rows = self._execute(SUPERSEDED, [[row.position for row in saved]], database=DATABASE)
        return {position for (position,) in rows}

    def outcomes(self, transaction_ids: Iterable[str]) -> dict[str, str | None]:
        """Return `in progress`, `committed` or `aborted` for each transaction.

        None means that the transaction is so old that PostgreSQL has removed its status.
        """
        return dict(self._execute(OUTCOMES, [sorted(set(transaction_ids))]))

    def _execute(
        self, statement: sql.SQL, values: dict[str, Any] | list[Any], **parts: sql.Composable
    ) -> list[tuple[Any, ...]]:
        return rows_of(self.connection, statement.format(table=self._table, **parts), values)


def recover(
    store: RecoveryStore, producer: Producer, settings: Mapping[str, Any], *, seconds: float = READ_S
) -> Recovered:
    """Resolve the rows that crashes left, and return the result. The recovery can be repeated at any time.

    `producer` is a new transactional producer with the transactional.id of the crashed producer. The recovery first
    fences earlier producers, so that a process that is still running cannot commit in Kafka. Then it waits until the
    business transactions of that process have ended, because they could still add rows. `settings` are consumer
    properties of confluent-kafka, at least bootstrap.servers. While records are sent again, no sender with this table
    can begin a transaction. Raises WaitTimeoutError if one of these waits takes longer than `seconds`.
    """
    with locked(store.connection, store.recovery_lock, seconds=seconds):
        fence(producer, seconds=seconds)
        wait_until_ended(store.connection, store.sender, seconds=seconds)
        saved = store.read()
        outcomes = _wait_for_outcomes(store, saved, Deadline(seconds))
        decided = [row for row in saved if outcomes.get(row.transaction_id or "")]
        searched = [(row.record.topic, row.event_id) for row in decided]
        since = min((row.saved_at for row in decided), default=0.0)
        found = find_delivered(settings, searched, since, seconds=seconds)
        groups: dict[str, list[SavedRecord]] = defaultdict(list)
        for row in decided:
            groups[_group(row, outcomes, found)].append(row)
        store.forget_delivered(groups["proven"])
        store.forget_undelivered(groups["rolled_back"] + groups["phantoms"])
        superseded: list[SavedRecord] = []
        if groups["missing"]:
            with locked(store.connection, store.sending_lock, seconds=seconds):
                superseded = _resend(store, producer, settings, groups["missing"])
    return Recovered(
        proven=len(groups["proven"]),
        rolled_back=len(groups["rolled_back"]),
        resent=len(groups["missing"]) - len(superseded),
        undecided=len(saved) - len(decided),
        phantoms=tuple(row.event_id for row in groups["phantoms"]),
        superseded=tuple(row.event_id for row in superseded),
        missing_topics=tuple(sorted(found.missing_topics)),
    )


def _wait_for_outcomes(store: RecoveryStore, saved: Sequence[SavedRecord], deadline: Deadline) -> dict[str, str | None]:
    """Wait until all business transactions have ended, and return their outcomes."""
    transaction_ids = {row.transaction_id for row in saved if row.transaction_id is not None}

    def poll() -> Observation[dict[str, str | None]]:
        outcomes = store.outcomes(transaction_ids)
        running = sorted(xid for xid, outcome in outcomes.items() if outcome == "in progress")
        return Observation(None if running else outcomes, f"transactions in progress: {', '.join(running)}")

    if not transaction_ids:
        return {}
    subject = "the end of the business transactions"
    return wait_for(subject, poll, seconds=deadline.seconds_left, hint=OPEN_TRANSACTION_HINT)


def _group(row: SavedRecord, outcomes: Mapping[str, str | None], found: Found) -> str:
    if row.record.topic in found.missing_topics:
        return "unreadable"
    is_committed, is_delivered = outcomes[row.transaction_id or ""] == "committed", row.event_id in found.event_ids
    if is_committed:
        return "proven" if is_delivered else "missing"
    return "phantoms" if is_delivered else "rolled_back"


def _resend(
    store: RecoveryStore, producer: Producer, settings: Mapping[str, Any], missing: Sequence[SavedRecord]
) -> list[SavedRecord]:
    """Send the missing records, except superseded records of compacted topics, and return the latter.

    The caller's lock ensures that a newer record is either saved or sent afterwards. DELIVERY_S limits all waits for
    the brokers together.
    """
    deadline = Deadline(DELIVERY_S)
    positions = store.superseded(missing)
    older = [row for row in missing if row.position in positions]
    compacted = compacted_topics(settings, {row.record.topic for row in older}, deadline.seconds_left)
    superseded = [row for row in older if row.record.topic in compacted]
    if sent := [row.record for row in missing if row not in superseded]:
        _send(producer, sent, deadline.seconds_left)
    store.forget_delivered(missing)
    return superseded


def _send(producer: Producer, records: Iterable[Record], seconds: float) -> None:
    """Send records in one Kafka transaction. After an error, the next recovery determines which records arrived."""
    transaction = KafkaTransaction(producer, seconds=seconds, is_total=True)
    try:
        transaction.deliver(records)
    except NotDeliveredError:
        transaction.abort()
        raise
    transaction.commit()
