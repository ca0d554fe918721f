"""A Kafka cluster in memory, in place of a KafkaClient."""

from __future__ import annotations

from collections.abc import Iterable

from outbox_kit.kafka.client import ActualTopic, Bounds


class FakeKafka:
    """A cluster with topics by name, of which those in `bounds_by_topic` have records."""

    def __init__(self, states: dict[str, ActualTopic]) -> None:
        self.states = states
        self.bounds_by_topic: dict[str, dict[int, Bounds]] = {}
        self.cluster = "cluster-1"

    def cluster_id(self) -> str:
        return self.cluster

    def topics(self) -> dict[str, tuple[int, int]]:
        return {name: (state.partitions, state.replication_factor) for name, state in self.states.items()}

    def describe(self, names: Iterable[str]) -> dict[str, ActualTopic]:
        return {name: self.states[name] for name in names}

    def bounds(self, name: str) -> dict[int, Bounds]:
        return self.bounds_by_topic.get(name, {})

    def has_records(self, name: str, _: int) -> bool:
        return name in self.bounds_by_topic

    def delete(self, name: str) -> None:
        del self.states[name]
