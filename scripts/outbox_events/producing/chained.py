"""Commit a Kafka transaction and a database transaction one after the other (chained best-effort commit).

    sender = ChainedSender(connection, producer, order="database-first", store=store)
    with sender.transaction() as transaction:
        connection.execute("update ...")
        transaction.send(record)

A failure before the first commit rolls back both transactions. After a crash between the two commits, only one
is committed. Without a recovery store, the record is then lost (database-first) or is a phantom (kafka-first).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from confluent_kafka import Producer

from outbox_events.errors import RefusedError
from outbox_events.limited_calls import GRACE_S
from outbox_events.producing.database import Connection, Order, commit, limited, require_order
from outbox_events.producing.deliveries import DELIVERY_S, KafkaTransaction
from outbox_events.producing.errors import UnknownOutcomeError
from outbox_events.producing.recovery_store import RecoveryStore
from outbox_events.producing.sender_transaction import SenderTransaction, aborted_on_error, open_transaction


class ChainedSender:
    """Pairs transactions of one connection with transactions of one transactional producer. Not thread-safe.

    Before the first transaction, call `fence(producer)` or, with a store, `recover(...)` once. With a `store`, each
    transaction that sends records executes two more statements: an insert before the commits and a delete after them.
    Reading the xid of the transaction does not need another round trip, because BEGIN and the query are sent together.
    """

    def __init__(
        self,
        connection: Connection,
        producer: Producer,
        *,
        order: Order = "database-first",
        store: RecoveryStore | None = None,
        seconds: float = DELIVERY_S,
    ) -> None:
        """`seconds` limits the end of a transaction: delivery and commit in Kafka, and each call of the database.

        Raises ConfigurationError for an unknown order.
        """
        if store is not None and store.connection is connection:
            message = "the recovery store uses the connection of the business transaction"
            raise RefusedError(message, "open a separate connection with autocommit=True")
        if store is not None and store.connection.info.dbname != connection.info.dbname:
            message = f"the recovery store is in another database than {connection.info.dbname}: locks would not work"
            raise RefusedError(message, "create the table of the recovery store in the database of the service")
        self._connection = connection
        self._producer = producer
        self._order = require_order(order)
        self._store = store
        self._seconds = seconds
        self._open: SenderTransaction | None = None

    @contextmanager
    def transaction(self) -> Iterator[SenderTransaction]:
        """Run a block in a database transaction, then send its records in a Kafka transaction and commit both.

        After an exception in the block, the database transaction is rolled back, and nothing was sent. A nested block
        joins the transaction of the outer block, and only the outer block commits. For an independent nested
        transaction, use another sender with its own connection and producer. Raises UnknownOutcomeError if a commit has
        no known result; with a store, the recovery determines the result.
        """
        if self._open is not None:
            with self._open.joined():
                yield self._open
            return
        store = self._store
        names = (store.sender, store.sending_lock) if store is not None else (None, None)
        with open_transaction(self._connection, *names, seconds=self._seconds) as transaction:
            self._open = transaction
            try:
                with transaction.block():
                    yield transaction
            finally:
                self._open = None
            self._commit(transaction)

    def _commit(self, transaction: SenderTransaction) -> None:
        if not transaction.records:
            commit(self._connection, seconds=self._seconds)
            return
        kafka = KafkaTransaction(self._producer, seconds=self._seconds, is_total=True)
        with aborted_on_error(self._connection, kafka):
            kafka.deliver(transaction.records)
            if self._store is not None:
                with limited(self._store.connection, kafka.seconds_left):
                    self._store.save(transaction.transaction_id, transaction.records)
        self._commit_both(kafka)
        if self._store is not None:
            # Both have committed. A remaining row is harmless: the next recovery finds the row's record on the topic.
            with suppress(psycopg.Error), limited(self._store.connection, GRACE_S):
                self._store.forget(transaction.transaction_id)

    def _commit_both(self, kafka: KafkaTransaction) -> None:
        """Commit both transactions in the configured order. After an error, the rows in the store remain."""
        if self._order == "kafka-first":
            _commit_kafka(kafka, "the database is rolled back, so the records are phantoms if Kafka committed")
            commit(self._connection, "Kafka has committed", seconds=kafka.seconds_left)
            return
        try:
            commit(self._connection, "the transaction of the producer is still open", seconds=kafka.seconds_left)
        except psycopg.Error:  # it is certain that the commit failed
            kafka.abort()
            raise
        _commit_kafka(kafka, "the database has committed, so the records are lost if Kafka did not commit")


def _commit_kafka(kafka: KafkaTransaction, database: str) -> None:
    """Commit in Kafka. `database` describes the database transaction if the outcome is unknown."""
    try:
        kafka.commit()
    except UnknownOutcomeError as error:
        raise UnknownOutcomeError(f"{error.message}; {database}", error.hint) from error.__cause__
