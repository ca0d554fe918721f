"""Save the records of a block in its database transaction, and send them after the commit.

    sender = ProofSender(connection, producer)
    with sender.transaction() as transaction:
        connection.execute("update ...")
        transaction.send(record)

The rows are the proof of `delivery_proof`: its listener deletes them, and its recovery sends what remains.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from outbox_events.producing.database import Connection, commit, limited
from outbox_events.producing.deliveries import DELIVERY_S, Deliveries
from outbox_events.producing.delivery_proof import DeliveryProof
from outbox_events.producing.sender_transaction import SenderTransaction, open_transaction


class ProofSender:
    """Pairs transactions of one connection with a producer that does not use Kafka transactions. Not thread-safe."""

    def __init__(
        self,
        connection: Connection,
        producer: Producer,
        proof: DeliveryProof | None = None,
        *,
        seconds: float = DELIVERY_S,
    ) -> None:
        """`proof` is the table, by default the default table. `seconds` limits each wait for database and brokers."""
        self._connection = connection
        self._producer = producer
        self._proof = proof or DeliveryProof()
        self._seconds = seconds

    @contextmanager
    def transaction(self) -> Iterator[SenderTransaction]:
        """Run a block in a database transaction, save its records with one statement, commit, and send the records.

        After NotDeliveredError and UnknownOutcomeError, the recovery sends the records if the transaction committed.
        """
        with open_transaction(self._connection, seconds=self._seconds) as transaction:
            with transaction.block():
                yield transaction
            if transaction.records:
                with limited(self._connection, self._seconds):
                    self._proof.save(self._connection, transaction.records)
            commit(self._connection, seconds=self._seconds)
        Deliveries(self._producer, seconds=self._seconds).deliver(transaction.records)
