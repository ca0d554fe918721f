"""Send records independently of the database transaction (dual write), as a baseline for the other ways.

In both orders, a crash between the two steps leaves only one of the two systems changed, and nothing detects this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from outbox_events.kafka.record import Record
from outbox_events.producing.database import (
    Connection,
    Order,
    commit,
    require_committable,
    require_idle,
    require_order,
    roll_back,
)
from outbox_events.producing.deliveries import DELIVERY_S, Deliveries


class DirectTransaction:
    """An open database transaction. `records` contains the records that are sent with the transaction."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def send(self, record: Record) -> None:
        """Add a record, which is sent at the end of the block."""
        self.records.append(record)


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
    def transaction(self) -> Iterator[DirectTransaction]:
        """Run a block in a database transaction. Commit and send at its end. If the block raises, do neither."""
        require_idle(self._connection)
        transaction = DirectTransaction()
        try:
            yield transaction
            require_committable(self._connection)
            if self._order == "kafka-first":
                self._send(transaction)
        except BaseException:
            roll_back(self._connection)
            raise
        commit(self._connection)
        if self._order == "database-first":
            self._send(transaction)

    def _send(self, transaction: DirectTransaction) -> None:
        deliveries = Deliveries(self._producer, seconds=self._seconds)
        for record in transaction.records:
            deliveries.send(record)
        deliveries.wait()
