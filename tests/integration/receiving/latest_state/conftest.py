"""Topics for the tests of outbox_events.receiving, and records with the headers of the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from outbox_events.errors import RejectedError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.pipeline import Kafka
from outbox_kit.stack import StackState


def sequence(number: int, *, epoch: int = 1) -> str:
    """Return a source_sequence. Sequences have the same order as their numbers."""
    return f"{epoch:04x}_{number:016x}-{number:016x}"


class CompactedTopic:
    """A topic, and a producer of its records."""

    def __init__(self, bootstrap: str, partitions: int, config: dict[str, str]) -> None:
        self.name = f"receiving-{uuid4().hex[:12]}"
        self.settings = {"bootstrap.servers": bootstrap, "fetch.wait.max.ms": 20}
        self._client = KafkaClient(Kafka(bootstrap_servers=bootstrap))
        # With this policy, the broker accepts requests to delete records.
        self._config = {"cleanup.policy": "compact,delete", "retention.ms": "-1", **config}
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self.create(partitions)

    def create(self, partitions: int) -> None:
        self._client.create(self.name, partitions=partitions, replication_factor=1, config=self._config)
        self._wait_partitions(partitions)

    def delete(self) -> None:
        self._client.delete(self.name)

    def add_partitions(self, count: int) -> None:
        self._client.add_partitions(self.name, count)
        self._wait_partitions(count)
        self._producer = Producer({"bootstrap.servers": self.settings["bootstrap.servers"], "log_level": 0})

    def recreate(self, partitions: int) -> None:
        """Delete the topic and create it again. The broker deletes topics in the background."""
        self.delete()

        def poll() -> Observation[bool]:
            try:
                self.create(partitions)
            except RejectedError as error:
                return Observation(None, str(error))
            return Observation(True, "")

        wait_for("the deletion of the topic", poll, seconds=30)

    def _wait_partitions(self, count: int) -> None:
        def poll() -> Observation[bool]:
            found = len(self._client.metadata(self.name).topics[self.name].partitions)
            return Observation(found == count or None, str(found))

        wait_for(f"{count} partitions", poll, seconds=30, interval=0.05)

    def delete_records(self, partition: int, before: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.settings["bootstrap.servers"]})
        for future in admin.delete_records([TopicPartition(self.name, partition, before)]).values():
            future.result(30)

    def send(
        self,
        key: str,
        value: bytes | None,
        order: int | str | None,
        *,
        partition: int = 0,
        producer: Producer | None = None,
    ) -> None:
        """Send a record. `order` is its source_sequence, the number of one, or None to omit the header."""
        text = sequence(order) if isinstance(order, int) else order
        headers: list[tuple[str, bytes]] = [("event_id", uuid4().bytes)]
        if text is not None:
            headers.append(("source_sequence", text.encode()))
        failures: list[object] = []
        used = producer or self._producer
        used.produce(
            self.name,
            value,
            key.encode(),
            partition=partition,
            headers=headers,
            on_delivery=lambda error, _: failures.append(error) if error is not None else None,
        )
        assert used.flush(30) == 0
        assert failures == []

    def transactional_producer(self) -> Producer:
        producer = Producer({"bootstrap.servers": self.settings["bootstrap.servers"], "transactional.id": self.name})
        producer.init_transactions(30)
        return producer


MakeTopic = Callable[..., CompactedTopic]


@pytest.fixture
def make_topic(state: StackState) -> Iterator[MakeTopic]:
    """Create topics that are deleted after the test."""
    with ExitStack() as cleanup:

        def make(partitions: int = 1, **config: str) -> CompactedTopic:
            names = {name.replace("_", "."): value for name, value in config.items()}
            topic = CompactedTopic(state.kafka, partitions, names)
            cleanup.callback(topic.delete)
            return topic

        yield make


@pytest.fixture
def topic(make_topic: MakeTopic) -> CompactedTopic:
    """Return an empty topic with two partitions."""
    return make_topic(2)
