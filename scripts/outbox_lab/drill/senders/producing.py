"""Send events by a Kafka producer, for ways in which the service itself produces to Kafka."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
from confluent_kafka import Producer

from outbox_events import (
    ChainedSender,
    DeliveryProof,
    OutboxEvent,
    ProofSender,
    RecoveryStore,
    SenderTransaction,
    TwoPhaseSender,
    delivery_proof,
    fence,
    recover,
    recovery_store,
    two_phase,
)
from outbox_events.contract.headers import EVENT_ID
from outbox_events.kafka.record import PRODUCER_SETTINGS, Record
from outbox_lab.drill import accounts
from outbox_lab.drill.senders.direct_sender import DirectSender
from outbox_lab.drill.senders.sender import Connection, Send, Sender

# transaction.timeout.ms, shorter than the pauses of the drill: the broker aborts the transaction of a paused producer.
TRANSACTION_TIMEOUT_MS = 10_000
DELIVERY_S = 10.0
# Younger rows are not recovered, because another writer might be about to send them.
MIN_AGE_S = 2.0
CREATE_TABLES = (recovery_store.create_table_sql(), delivery_proof.create_table_sql())


class ProducingSender(Sender):
    """Base class of senders that send each event as a record to one topic. Each sender has its own producer."""

    is_transactional = False

    def __init__(self, options: Mapping[str, str], name: str) -> None:
        super().__init__(options, name)
        self.client = {"bootstrap.servers": options["bootstrap_servers"], "log_level": 0}
        self.transactional_id = f"{options['topic']}-{name}"
        self.producer = Producer({**self.client, **PRODUCER_SETTINGS, **self._transaction_settings()})

    def _transaction_settings(self) -> dict[str, Any]:
        if not self.is_transactional:
            return {"message.timeout.ms": int(DELIVERY_S * 1000)}
        return {"transactional.id": self.transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}

    def record(self, event: OutboxEvent) -> Record:
        """Return the record of an event. The value of the record is JSON, or null for a tombstone."""
        value = None if event.payload is None else json.dumps(event.payload).encode()
        headers = ((EVENT_ID, str(event.event_id).encode()),)
        return Record(self.options["topic"], str(event.aggregate_id).encode(), value, headers)

    def close(self) -> None:
        """Discard unsent records, because a process that is killed does not send them either."""
        self.producer.purge()


class PairedSender(ProducingSender):
    """Base class of senders that call a sender of the library, which pairs records with a database transaction."""

    @abstractmethod
    def open_transaction(self, connection: Connection) -> AbstractContextManager[SenderTransaction]:
        """Open a transaction with the library's sender."""

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[Send]:
        def send(events: Sequence[OutboxEvent]) -> None:
            for event in events:
                transaction.send(self.record(event))

        with self.open_transaction(connection) as transaction:
            yield send


class Direct(PairedSender):
    """Sends by dual write, in the order that the options set."""

    def open_transaction(self, connection: Connection) -> AbstractContextManager[SenderTransaction]:
        order: Any = self.options["order"]
        return DirectSender(connection, self.producer, order=order, seconds=DELIVERY_S).transaction()


class Chained(PairedSender):
    """Commits in Kafka and the database, in the order that the options set, without a recovery store."""

    is_transactional = True
    store: RecoveryStore | None = None

    def recover(self, connection: Connection) -> None:
        del connection
        fence(self.producer)

    def open_transaction(self, connection: Connection) -> AbstractContextManager[SenderTransaction]:
        order: Any = self.options["order"]
        return ChainedSender(connection, self.producer, order=order, store=self.store, seconds=DELIVERY_S).transaction()


class ChainedWithStore(Chained):
    """Commits in the database and then in Kafka, with a recovery store."""

    def recover(self, connection: Connection) -> None:
        own = psycopg.connect(self.options["dsn"], autocommit=True, connect_timeout=5)
        self.store = RecoveryStore(own, self.transactional_id)
        recovered = recover(self.store, self.producer, self.client)
        accounts.mark_superseded(connection, recovered.superseded)

    def close(self) -> None:
        super().close()
        if self.store is not None:
            self.store.connection.close()


class Proof(PairedSender):
    """Saves rows in the business transaction, and sends them after the commit. A topic listener deletes the rows."""

    proof = DeliveryProof()

    def recover(self, connection: Connection) -> None:
        min_age_s = 0.0 if self.is_last else MIN_AGE_S
        recovered = self.proof.recover(connection, self.producer, self.client, min_age_s=min_age_s)
        accounts.mark_superseded(connection, recovered.superseded)

    def open_transaction(self, connection: Connection) -> AbstractContextManager[SenderTransaction]:
        return ProofSender(connection, self.producer, self.proof, seconds=DELIVERY_S).transaction()


class TwoPhase(PairedSender):
    """Prepares the database transaction, commits in Kafka, and then commits the prepared transaction."""

    is_transactional = True

    def recover(self, connection: Connection) -> None:
        two_phase.recover(connection, self.producer, self.transactional_id, self.client)

    def open_transaction(self, connection: Connection) -> AbstractContextManager[SenderTransaction]:
        return TwoPhaseSender(connection, self.producer, self.transactional_id, seconds=DELIVERY_S).transaction()


PRODUCING_SENDERS: dict[str, type[Sender]] = {
    "direct": Direct,
    "chained": Chained,
    "chained-with-store": ChainedWithStore,
    "delivery-proof": Proof,
    "two-phase": TwoPhase,
}
