"""Send records independently of the database transaction (dual write), as a baseline for the other ways.

In both orders, a crash between the two steps leaves only one of the two systems changed, and nothing detects this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from outbox_events.producing.database import Connection, Order, commit, require_order
from outbox_events.producing.deliveries import DELIVERY_S, Deliveries
from outbox_events.producing.sender_transaction import SenderTransaction, open_transaction


class DirectSender:
    """Sends records before or after the commit of their database transaction. Not thread-safe.

    With database-first, records are lost if the process crashes after the commit, or if Kafka does not confirm the
    records. In the second case, NotDeliveredError is raised: the change is committed, but consumers might never receive
    its records. With kafka-first, if the process crashes before the commit or the commit fails, a record
    announces a change that did not happen. Even without a failure, a consumer can receive a record and read the
    database before the change is committed.
    """

    def __init__(
        self,
        connection: Connection,
        producer: Producer,
        *,
        order: Order = "database-first",
        seconds: float = DELIVERY_S,
    ) -> None:
        """Create the sender. `seconds` limits the wait for brokers. Raises ConfigurationError if `order` is unknown."""
        self._connection = connection
        self._producer = producer
        self._order = require_order(order)
        self._seconds = seconds

    @contextmanager
    def transaction(self) -> Iterator[SenderTransaction]:
        """Run a block in a database transaction. Commit and send at its end. If the block raises, do neither."""
        with open_transaction(self._connection, seconds=self._seconds) as transaction:
            with transaction.block():
                yield transaction
            if self._order == "kafka-first":
                self._send(transaction)
            commit(self._connection, seconds=self._seconds)
        if self._order == "database-first":
            self._send(transaction)

    def _send(self, transaction: SenderTransaction) -> None:
        Deliveries(self._producer, seconds=self._seconds).deliver(transaction.records)
