"""Commit in two phases (last-resource commit): the database prepares, and the commit in Kafka decides the outcome.

    PREPARE TRANSACTION 'gid'  ->  commit of the Kafka transaction  ->  COMMIT PREPARED 'gid'

The topic is the decision log: a prepared transaction is committed if and only if its records are readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from confluent_kafka import Producer
from psycopg import sql
from psycopg.rows import tuple_row

from outbox_events.errors import ConfigurationError
from outbox_events.kafka.record import Record
from outbox_events.producing.database import Connection, commit, is_lost, limited, require_idle, wait_until_ended
from outbox_events.producing.deliveries import DELIVERY_S, KafkaTransaction, fence
from outbox_events.producing.errors import NotCommittedError, UnknownOutcomeError
from outbox_events.producing.sender_transaction import SenderTransaction, aborted_on_error, open_transaction
from outbox_events.producing.stored_record import READ_S, delivered_event_ids, event_id
from outbox_events.sending.event import InvalidEventError
from outbox_events.text import plural

MAX_GID_BYTES = 199  # PostgreSQL's GIDSIZE without the terminating byte
SEPARATOR = ":"
RECOVER_HINT = "run the recovery, which reads the topic"
IN_DOUBT = "select gid from pg_prepared_xacts where database = current_database() order by prepared"


@dataclass(frozen=True)
class Resolved:
    """Result of a recovery: the numbers of prepared transactions that were committed and rolled back."""

    committed: int = 0
    rolled_back: int = 0


class TwoPhaseSender:
    """Pairs prepared transactions of one connection with transactions of one transactional producer.

    `transactional_id` is the producer's transactional.id. Call `recover` once before the first transaction. Requires
    max_prepared_transactions > 0. A prepared transaction keeps its locks until it is resolved. Not thread-safe.
    """

    def __init__(
        self, connection: Connection, producer: Producer, transactional_id: str, *, seconds: float = DELIVERY_S
    ) -> None:
        """`seconds` limits the end of a transaction: delivery and commit in Kafka, and each call of the database."""
        self._connection = connection
        self._producer = producer
        self._transactional_id = transactional_id
        self._seconds = seconds

    @contextmanager
    def transaction(self) -> Iterator[SenderTransaction]:
        """Run a block in a database transaction, then send its records in a Kafka transaction and commit both.

        After an exception in the block, the database transaction is rolled back, and nothing was sent. After
        UnknownOutcomeError, for example because the connection was lost, the prepared transaction might remain until
        the recovery has read the topic. The Kafka transaction might already be committed.
        """
        with open_transaction(self._connection, self._transactional_id, seconds=self._seconds) as transaction:
            with transaction.block():
                yield transaction
            if transaction.records:
                self._decide(*self._prepare(transaction.records))
            else:
                commit(self._connection, seconds=self._seconds)

    def _prepare(self, records: Sequence[Record]) -> tuple[KafkaTransaction, str]:
        """Deliver the records and prepare the database transaction. Return the open Kafka transaction and the gid."""
        gid = make_gid(self._transactional_id, event_id(records[0]))
        kafka = KafkaTransaction(self._producer, seconds=self._seconds, is_total=True)
        with aborted_on_error(self._connection, kafka):
            kafka.deliver(records)
            self._execute_prepare(gid)
        return kafka, gid

    def _execute_prepare(self, gid: str) -> None:
        try:
            with limited(self._connection, self._seconds):
                self._connection.execute(sql.SQL("prepare transaction {}").format(sql.Literal(gid)))
        except psycopg.errors.ObjectNotInPrerequisiteState as error:
            message = "PostgreSQL rejects prepared transactions: max_prepared_transactions is 0"
            hint = "set max_prepared_transactions to the number of concurrent senders or more, and restart PostgreSQL"
            raise ConfigurationError(message, hint) from error
        except psycopg.OperationalError as error:
            if not is_lost(error):
                raise
            message = f"the connection was lost in PREPARE TRANSACTION, so {gid} may be prepared; Kafka did not commit"
            raise UnknownOutcomeError(message, RECOVER_HINT) from error

    def _decide(self, kafka: KafkaTransaction, gid: str) -> None:
        """Commit the Kafka transaction, then commit or roll back the prepared transaction accordingly."""
        try:
            kafka.commit()
        except NotCommittedError:
            try:
                self._resolve(gid, self._connection.tpc_rollback, "Kafka did not commit, and ROLLBACK PREPARED failed")
            finally:
                kafka.abort()
            raise
        self._resolve(gid, self._connection.tpc_commit, "Kafka has committed, and COMMIT PREPARED failed")

    def _resolve(self, gid: str, statement: Callable[[str], None], failure: str) -> None:
        """Execute COMMIT PREPARED or ROLLBACK PREPARED. Raises UnknownOutcomeError if the statement fails."""
        try:
            with limited(self._connection, self._seconds):
                statement(gid)
        except psycopg.Error as error:
            raise UnknownOutcomeError(f"{failure}: {gid} might remain prepared", RECOVER_HINT) from error


def make_gid(transactional_id: str, first_event_id: str) -> str:
    """Return a prepared transaction's gid, which consists of the transactional.id and the id of its first event.

    The id of one event suffices, because all records of a Kafka transaction become readable together. The gid contains
    this id, because the rows of a prepared transaction are not visible. Raises InvalidEventError if the gid is invalid.
    """
    gid = f"{transactional_id}{SEPARATOR}{first_event_id}"
    if SEPARATOR in first_event_id or len(gid.encode()) > MAX_GID_BYTES:
        names = f"event id {first_event_id!r} and transactional.id {transactional_id!r}"
        message = f"{names} do not form a valid transaction identifier"
        raise InvalidEventError(message, f"use a UUID, and at most {MAX_GID_BYTES} bytes in total")
    return gid


def recover(
    connection: Connection,
    producer: Producer,
    transactional_id: str,
    settings: Mapping[str, Any],
    topics: Iterable[str],
    *,
    seconds: float = READ_S,
) -> Resolved:
    """Resolve the prepared transactions of `transactional_id` in the connection's database by reading the topics.

    `producer` is a new producer with this transactional.id. The recovery first fences earlier producers, which decides
    the outcome of their Kafka transactions. Then it waits until their open database transactions are prepared or have
    ended. `topics` must contain every topic to which the sender sends. `settings` are consumer properties of
    confluent-kafka. It can be repeated. Raises ConfigurationError if a transaction is in doubt without topics.
    """
    require_idle(connection)
    fence(producer, seconds=seconds)
    with connection.transaction():
        wait_until_ended(connection, transactional_id, seconds=seconds)
    event_ids = in_doubt(connection, transactional_id)
    names = set(topics)
    if event_ids and not names:
        message = f"cannot resolve {plural(len(event_ids), 'prepared transaction')} of {transactional_id}: no topics"
        raise ConfigurationError(message, "pass every topic to which the sender sends")
    delivered = delivered_event_ids(settings, names, event_ids.values(), seconds=seconds)
    committed = {gid for gid, first_event_id in event_ids.items() if first_event_id in delivered}
    for gid in event_ids:
        (connection.tpc_commit if gid in committed else connection.tpc_rollback)(gid)
    return Resolved(len(committed), len(event_ids) - len(committed))


def in_doubt(connection: Connection, transactional_id: str) -> dict[str, str]:
    """Return the gids of a sender's prepared transactions, each mapped to the id of its first event."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        gids = [gid for (gid,) in cursor.execute(IN_DOUBT).fetchall()]
    connection.rollback()
    parts = {gid: gid.rpartition(SEPARATOR) for gid in gids}
    return {gid: first_id for gid, (owner, _, first_id) in parts.items() if owner == transactional_id}
