"""Systems of the worked example in memory; Connect and registry are HTTP servers that each test starts."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from outbox_kit.connect import lifecycle
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.client import Bounds, TopicState
from outbox_kit.kafka.state import desired_topics
from outbox_kit.pipeline import Environment, Pipeline


class FakeKafka:
    """A cluster with topics by name, of which those in `bounds_by_topic` have records."""

    def __init__(self, states: dict[str, TopicState]) -> None:
        self.states = states
        self.bounds_by_topic: dict[str, dict[int, Bounds]] = {}
        self.cluster = "cluster-1"

    def cluster_id(self) -> str:
        return self.cluster

    def topics(self) -> dict[str, tuple[int, int]]:
        return {name: (state.partitions, state.replication_factor) for name, state in self.states.items()}

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        return {name: self.states[name] for name in names}

    def bounds(self, name: str) -> dict[int, Bounds]:
        return self.bounds_by_topic.get(name, {})

    def has_records(self, name: str, _: int) -> bool:
        return name in self.bounds_by_topic

    def delete(self, name: str) -> None:
        del self.states[name]


@pytest.fixture
def kafka(library: Pipeline, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    """The Kafka cluster of every deployment, with the desired topics."""
    topics = desired_topics(library, environment)
    fake = FakeKafka({topic.name: TopicState(topic.partitions, topic.replicas, topic.config) for topic in topics})
    monkeypatch.setattr(Deployment, "kafka", fake)
    monkeypatch.setattr(lifecycle, "POLL_INTERVAL_S", 0.01)
    return fake
