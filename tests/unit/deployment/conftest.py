"""The worked example with systems in memory. Tests start HTTP servers for Connect and registry."""

from __future__ import annotations

import pytest
from tests.unit.fake_kafka import FakeKafka

from outbox_kit.connect import lifecycle
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.client import ActualTopic
from outbox_kit.kafka.state import desired_topics
from outbox_kit.pipeline import Environment, Pipeline


@pytest.fixture
def kafka(library: Pipeline, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    """The Kafka cluster of every deployment, with the desired topics."""
    topics = desired_topics(library, environment)
    fake = FakeKafka(
        {topic.name: ActualTopic(topic.partitions, topic.replication_factor, topic.config) for topic in topics}
    )
    monkeypatch.setattr(Deployment, "kafka", fake)
    monkeypatch.setattr(lifecycle, "POLL_INTERVAL_S", 0.01)
    return fake
