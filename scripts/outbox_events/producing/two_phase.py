"""Commit in two phases (last-resource commit): the database prepares, and the commit in Kafka decides the outcome.

    PREPARE TRANSACTION 'gid'  ->  commit of the Kafka transaction  ->  COMMIT PREPARED 'gid'

The topic is the decision log: a prepared transaction is committed if and only if its records are readable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from confluent_kafka import KafkaException, Producer
from psycopg import sql

from outbox_events.errors import ConfigurationError, OutboxError, RefusedError
from outbox_events.kafka.record import Record
from outbox_events.producing.database import Connection, commit, is_lost, limited, require_idle, rows_of
from outbox_events.producing.delivered import READ_S, Found, find_delivered
from outbox_events.producing.deliveries import DELIVERY_S, KafkaTransaction, fence
from outbox_events.producing.errors import UnknownOutcomeError
from outbox_events.producing.locks import locked, recovery_lock, wait_until_ended
from outbox_events.producing.sender_transaction import SenderTransaction, aborted_on_error, open_transaction
from outbox_events.producing.stored_record import event_id
from outbox_events.sending.event import InvalidEventError

MAX_GID_BYTES = 199  # PostgreSQL's GIDSIZE without the terminating byte
SEPARATOR, TOPIC_SEPARATOR = ":", "@"  # a topic's name contains neither
RECOVER_HINT = "run the recovery, which reads the topic"
IN_DOUBT = (
    "select gid, extract(epoch from prepared)::float8 from pg_prepared_xacts "
    "where database = current_database() and gid ~ ':[^:]*@[^:]+$' order by prepared"  # not those of other software
)
UNRESOLVED_HINT = (
    "create the topics and run the recovery again, or search the topics to which they were renamed for a record with "
    "the event id in the gid: COMMIT PREPARED 'gid' if it is committed there, otherwise ROLLBACK PREPARED 'gid'"
)


@dataclass(frozen=True)
class PreparedTransaction:
    """A prepared transaction. `event_id` and `topic` are those of its first record."""

    gid: str
    sender: str
    event_id: str
    topic: str
    prepared_at: float


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
        gid = make_gid(self._transactional_id, records[0])
        kafka = KafkaTransaction(self._producer, seconds=self._seconds, is_total=True)
        with aborted_on_error(self._connection, kafka):
            kafka.deliver(records)
            self._execute_prepare(gid, kafka.seconds_left)
        return kafka, gid

    def _execute_prepare(self, gid: str, seconds: float) -> None:
        try:
            with limited(self._connection, seconds):
                self._connection.execute(sql.SQL("prepare transaction {}").format(sql.Literal(gid)))
        except psycopg.errors.ObjectNotInPrerequisiteState as error:
            message = "PostgreSQL rejects prepared transactions: max_prepared_transactions is 0"
            hint = "set max_prepared_transactions to the number of concurrent senders or more, and restart PostgreSQL"
            raise ConfigurationError(message, hint) from error
        except psycopg.Error as error:
            if not is_lost(error):
                raise
            message = f"the connection was lost in PREPARE TRANSACTION, so {gid} may be prepared; Kafka did not commit"
            raise UnknownOutcomeError(message, RECOVER_HINT) from error
        except Exception as error:  # of a signal handler
            message = f"PREPARE TRANSACTION was interrupted, so {gid} may be prepared; Kafka did not commit"
            raise UnknownOutcomeError(message, RECOVER_HINT) from error

    def _decide(self, kafka: KafkaTransaction, gid: str) -> None:
        """Commit the Kafka transaction, then the prepared transaction. Raises UnknownOutcomeError if either fails."""
        try:
            kafka.commit()
            with limited(self._connection, self._seconds):
                self._connection.tpc_commit(gid)
        except psycopg.Error as error:
            message = f"Kafka has committed, and COMMIT PREPARED failed: {gid} might remain prepared"
            raise UnknownOutcomeError(message, RECOVER_HINT) from error
        except (OutboxError, KafkaException):
            raise
        except Exception as error:  # of a signal handler
            message = f"the end of the transaction was interrupted: {gid} might remain prepared"
            raise UnknownOutcomeError(message, RECOVER_HINT) from error


def make_gid(transactional_id: str, record: Record) -> str:
    """Return a prepared transaction's gid: `<transactional.id>:<event id>@<topic>` of its first record.

    One record suffices, because all records of a Kafka transaction become readable together. The gid contains its
    topic, because the rows of a prepared transaction are not visible. Raises InvalidEventError if the gid is invalid.
    """
    first_event_id = event_id(record)
    gid = f"{transactional_id}{SEPARATOR}{first_event_id}{TOPIC_SEPARATOR}{record.topic}"
    if SEPARATOR in first_event_id or len(gid.encode()) > MAX_GID_BYTES:
        message = f"{gid!r} is not a valid transaction identifier"
        hint = (
            f"use a UUID as event id; event id, topic and transactional.id can have {MAX_GID_BYTES - 2} bytes in total"
        )
        raise InvalidEventError(message, hint)
    return gid


def parse_gid(gid: str, prepared_at: float) -> PreparedTransaction:
    """Return the parts of a gid."""
    sender, _, place = gid.rpartition(SEPARATOR)
    first_event_id, _, topic = place.rpartition(TOPIC_SEPARATOR)
    return PreparedTransaction(gid, sender, first_event_id, topic, prepared_at)


def recover(
    connection: Connection,
    producer: Producer,
    transactional_id: str,
    settings: Mapping[str, Any],
    *,
    seconds: float = READ_S,
) -> Resolved:
    """Resolve the prepared transactions of `transactional_id` in the connection's database by reading their topics.

    `producer` is a new producer with this transactional.id. The recovery first fences earlier producers, which decides
    the outcome of their Kafka transactions. Then it waits until their open database transactions are prepared or have
    ended. `settings` are consumer properties of confluent-kafka. It can be repeated. Raises WaitTimeoutError if a wait
    takes longer than `seconds`. Raises RefusedError after resolving the other transactions if a topic does not exist.
    """
    require_idle(connection)
    with locked(connection, recovery_lock("pg_prepared_xacts", transactional_id), seconds=seconds):
        fence(producer, seconds=seconds)
        with connection.transaction():
            wait_until_ended(connection, transactional_id, seconds=seconds)
        prepared = [entry for entry in in_doubt(connection) if entry.sender == transactional_id]
        searched = [(entry.topic, entry.event_id) for entry in prepared]
        since = min((entry.prepared_at for entry in prepared), default=0.0)
        return _resolve(connection, prepared, find_delivered(settings, searched, since, seconds=seconds))


def _resolve(connection: Connection, prepared: Sequence[PreparedTransaction], found: Found) -> Resolved:
    unresolved = [entry.gid for entry in prepared if entry.topic in found.missing_topics]
    committed = [entry.gid for entry in prepared if entry.gid not in unresolved and entry.event_id in found.event_ids]
    for entry in prepared:
        if entry.gid not in unresolved:
            (connection.tpc_commit if entry.gid in committed else connection.tpc_rollback)(entry.gid)
    if unresolved:
        message = f"the topics of prepared transactions do not exist: {', '.join(unresolved)}"
        raise RefusedError(message, UNRESOLVED_HINT)
    return Resolved(len(committed), len(prepared) - len(committed))


def in_doubt(connection: Connection) -> list[PreparedTransaction]:
    """Return the prepared transactions of senders in the connection's database, oldest first."""
    with connection.transaction():
        return [parse_gid(*row) for row in rows_of(connection, IN_DOUBT)]
