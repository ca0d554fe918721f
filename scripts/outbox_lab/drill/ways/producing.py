"""Deploy ways of sending in which the service itself produces to Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event as Flag
from threading import Thread
from typing import ClassVar

import psycopg

from outbox_events import DeliveryListener, DeliveryProof
from outbox_kit.kafka.client import KafkaClient
from outbox_lab.drill.accounts import AGGREGATE
from outbox_lab.drill.project import PARTITIONS, TOPIC_SETTINGS
from outbox_lab.drill.senders.producing import CREATE_TABLES
from outbox_lab.drill.senders.sender import SenderSettings
from outbox_lab.drill.stack import DrillStack
from outbox_lab.drill.ways.way import STACK_FAULTS, Deployed, Promise, Way

CONNECT_TIMEOUT_S = 10
STOP_TIMEOUT_S = 30


class ProducingWay(Way):
    """Base class of ways whose writers produce to one topic."""

    order: ClassVar[str] = "database-first"
    """Which system commits first. The name of the sender is the name of the way without this order."""
    faults: ClassVar[tuple[str, ...]] = ("none", "kill-writer", "pause-writer", *STACK_FAULTS)

    @contextmanager
    def deployed(self) -> Iterator[Deployed]:
        topic = f"{self.cell}.{AGGREGATE}"
        kafka = self.drill.kafka
        minimum = {"min.insync.replicas": str(kafka.min_insync_replicas)}
        settings = {"cleanup.policy": "compact", **TOPIC_SETTINGS, **minimum}
        replicas = kafka.replication_factor
        KafkaClient(kafka).create(topic, partitions=PARTITIONS, replication_factor=replicas, config=settings)
        with self.drill.connect_to_database() as connection:
            for statement in CREATE_TABLES:
                connection.execute(statement)
        options = {
            "topic": topic,
            "bootstrap_servers": self.drill.state.kafka,
            "dsn": self.drill.proxied_dsn(),
            "order": self.order,
        }
        yield Deployed(topic, SenderSettings(self.name.removesuffix(f"-{self.order}"), options))


class DeliveryProofWay(ProducingWay):
    """Way in which the topic is the proof of delivery. Its listener runs in a thread of the drill."""

    name = "delivery-proof"
    description = "Rows of the transaction, sent after the commit, deleted when the topic shows them"
    promise = Promise(in_order=False)

    @contextmanager
    def deployed(self) -> Iterator[Deployed]:
        with super().deployed() as deployed, Listener(self.drill, deployed.topic):
            yield deployed


class Listener:
    """Deletes the rows of delivered records during a `with` block."""

    def __init__(self, drill: DrillStack, topic: str) -> None:
        settings = {"bootstrap.servers": drill.state.kafka, "group.id": f"{topic}-listener", "log_level": 0}
        connect = partial(psycopg.connect, drill.state.postgres, connect_timeout=CONNECT_TIMEOUT_S)
        listener = DeliveryListener(DeliveryProof(), connect, settings, [topic])
        self._stop = Flag()
        self._thread = Thread(target=listener.run, args=(self._stop,), name="listener", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(STOP_TIMEOUT_S)


def _way(name: str, description: str, promise: Promise, order: str = ProducingWay.order) -> type[Way]:
    members = {"name": name, "description": description, "promise": promise, "order": order}
    return type(name, (ProducingWay,), members)


STORE = "Chained commits with a recovery store: database, then Kafka"
KAFKA_FIRST_STORE = "Chained commits with a recovery store: Kafka, then database"
TWO_PHASE = "Last-resource commit: PREPARE TRANSACTION, Kafka, COMMIT PREPARED"
LOSES = Promise(no_loss=False, in_order=False)
ANNOUNCES = Promise(no_loss=False, no_phantom=False)
PRODUCING_WAYS: tuple[type[Way], ...] = (
    _way("chained-with-store", STORE, Promise(in_order=False)),
    DeliveryProofWay,
    _way("two-phase", TWO_PHASE, Promise(no_duplicates=True)),
    _way("chained-database-first", "Chained commits without a store: database, then Kafka", LOSES),
    _way("chained-with-store-kafka-first", KAFKA_FIRST_STORE, Promise(no_phantom=False), "kafka-first"),
    _way("chained-kafka-first", "Chained commits without a store: Kafka, then database", ANNOUNCES, "kafka-first"),
    _way("direct-database-first", "Dual write: commit of the database, then send", LOSES),
    _way("direct-kafka-first", "Dual write: send, then commit of the database", ANNOUNCES, "kafka-first"),
)
