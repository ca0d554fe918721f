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
from outbox_events.producing.database import (
    Connection,
    Order,
    begin,
    commit,
    require_committable,
    require_idle,
    require_order,
    rolled_back_on_error,
)
from outbox_events.producing.deliveries import DELIVERY_S, KafkaTransaction
from outbox_events.producing.errors import NotCommittedError
from outbox_events.producing.recovery_store import RecoveryStore


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
        """`seconds` limits each wait for the brokers. Raises ConfigurationError for an unknown order."""
        if store is not None and store.connection is connection:
            message = "the recovery store uses the connection of the business transaction"
            raise RefusedError(message, "open a separate connection with autocommit=True")
        self._connection = connection
        self._producer = producer
        self._order = require_order(order)
        self._store = store
        self._seconds = seconds
        self._open: KafkaTransaction | None = None

    @contextmanager
    def transaction(self) -> Iterator[KafkaTransaction]:
        """Run a block in both transactions. Commit both at the end of the block, or roll back both after an exception.

        A nested block joins the transaction of the outer block, and only the outer block commits. For an independent
        nested transaction, use another sender with its own connection and producer.
        """
        if self._open is not None:
            with self._open.joined():
                yield self._open
            return
        transaction_id, transaction = self._begin()
        self._open = transaction
        try:
            with self._aborted_on_error(transaction):
                yield transaction
                self._prepare(transaction, transaction_id)
            self._commit(transaction)
        finally:
            self._open = None
        if self._store is not None and transaction.records:
            # Both have committed. A remaining row is harmless: the next recovery finds the row's record on the topic.
            with suppress(psycopg.Error):
                self._store.forget(transaction_id)

    def _begin(self) -> tuple[str, KafkaTransaction]:
        """Begin both transactions. Return the xid of the database transaction, or '' if there is no store."""
        require_idle(self._connection)
        with rolled_back_on_error(self._connection):
            store = self._store
            transaction_id = begin(self._connection, store.sender, store.sending_lock) if store is not None else ""
            return transaction_id, KafkaTransaction(self._producer, seconds=self._seconds)

    def _prepare(self, transaction: KafkaTransaction, transaction_id: str) -> None:
        """Do everything that can fail before the first commit begins."""
        require_committable(self._connection)
        transaction.flush()
        if self._store is not None and transaction.records:
            self._store.save(transaction_id, transaction.records)

    def _commit(self, transaction: KafkaTransaction) -> None:
        """Commit both transactions in the configured order. After an error, the rows in the store remain."""
        if self._order == "database-first":
            with self._aborted_on_error(transaction):
                commit(self._connection)
            self._commit_kafka(transaction)
        else:
            with rolled_back_on_error(self._connection):
                self._commit_kafka(transaction)
                commit(self._connection)

    def _commit_kafka(self, transaction: KafkaTransaction) -> None:
        try:
            transaction.commit()
        except NotCommittedError:
            transaction.abort()
            raise

    @contextmanager
    def _aborted_on_error(self, transaction: KafkaTransaction) -> Iterator[None]:
        with rolled_back_on_error(self._connection):
            try:
                yield
            except BaseException:
                transaction.abort()
                raise
