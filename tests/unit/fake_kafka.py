"""A Kafka cluster in memory, which replaces a KafkaClient."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.kafka.client import ActualTopic


class FakeKafka:
    """A cluster with topics by name. The topics in `bounds_by_topic` have records, and `times` has timestamps."""

    def __init__(self, states: dict[str, ActualTopic]) -> None:
        self.states = states
        self.bounds_by_topic: dict[str, dict[int, Bounds]] = {}
        self.times: dict[str, float] = {}
        self.cluster = "cluster-1"

    def cluster_id(self) -> str:
        return self.cluster

    def topics(self) -> dict[str, tuple[int, int]]:
        return {name: (state.partitions, state.replication_factor) for name, state in self.states.items()}

    def describe(self, names: Iterable[str]) -> dict[str, ActualTopic]:
        return {name: self.states[name] for name in names if name in self.states}

    def create(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int,
        config: dict[str, str],
        only_validate: bool = False,
    ) -> None:
        if only_validate:
            return
        self.states[name] = ActualTopic(partitions, replication_factor, config, f"new id of {name}")

    def add_partitions(self, name: str, partitions: int) -> None:
        self.states[name] = replace(self.states[name], partitions=partitions)

    def set_config(self, name: str, config: dict[str, str], *, only_validate: bool = False) -> None:
        if only_validate:
            return
        self.states[name] = replace(self.states[name], config={**self.states[name].config, **config})

    def bounds(self, name: str) -> dict[int, Bounds]:
        return self.bounds_by_topic.get(name, {})

    def newest_times(self, names: Iterable[str]) -> dict[str, float]:
        return {name: self.times[name] for name in names if name in self.times}

    def has_records(self, name: str, _: int) -> bool:
        return name in self.bounds_by_topic

    def delete(self, name: str) -> None:
        del self.states[name]
