"""Systems of the worked example: the database's state is given, topics are as desired, the rest is HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

import pytest
from tests.unit.deployment.samples import Given

from outbox_kit.connect import lifecycle
from outbox_kit.connect.client import ConnectClient
from outbox_kit.deployment import Deployment, execution
from outbox_kit.kafka.client import Bounds, TopicState
from outbox_kit.kafka.state import desired_topics
from outbox_kit.pipeline import Environment, Pipeline
from outbox_kit.postgres.state import ActualDatabase

CLUSTER = "cluster-1"


class FakeKafka:
    """A cluster whose topics are as desired, and empty."""

    def __init__(self, pipeline: Pipeline, environment: Environment) -> None:
        self.states = {
            topic.name: TopicState(topic.partitions, topic.replicas, topic.config)
            for topic in desired_topics(pipeline, environment)
        }

    def cluster_id(self) -> str:
        return CLUSTER

    def topics(self) -> dict[str, tuple[int, int]]:
        return {name: (state.partitions, state.replication_factor) for name, state in self.states.items()}

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        return {name: self.states[name] for name in names}

    def bounds(self, name: str) -> dict[int, Bounds]:  # noqa: ARG002 - a KafkaClient's method
        return {}


@pytest.fixture
def given(library: Pipeline, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Given:
    """Set the database's state; Kafka has the desired topics, Connect belongs to the same cluster."""
    monkeypatch.setattr(lifecycle, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(Deployment, "kafka", FakeKafka(library, environment))
    monkeypatch.setattr(ConnectClient, "root", lambda _: {"kafka_cluster_id": CLUSTER})
    # Both need sessions of a real database.
    monkeypatch.setattr(execution, "exclusive", lambda *_, **__: nullcontext())
    monkeypatch.setattr(execution, "wait_until_reading", lambda _: None)

    def database(actual: ActualDatabase) -> None:
        monkeypatch.setattr(Deployment, "read_database", lambda _: actual)

    return database
