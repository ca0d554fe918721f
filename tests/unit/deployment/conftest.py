"""The worked example with systems in memory. Tests start HTTP servers for Connect and the registry."""

from __future__ import annotations

import pytest
from tests.unit.fake_kafka import FakeKafka
from tests.unit.kafka_samples import actual_topics

from outbox_kit.connect import lifecycle
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.state import desired_topics
from outbox_kit.pipeline import Environment, Pipeline


@pytest.fixture
def kafka(library: Pipeline, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    """The Kafka cluster of every deployment, with the desired topics."""
    fake = FakeKafka(actual_topics(desired_topics(library, environment)))
    monkeypatch.setattr(Deployment, "kafka", fake)
    monkeypatch.setattr(lifecycle, "POLL_INTERVAL_S", 0.01)
    return fake
