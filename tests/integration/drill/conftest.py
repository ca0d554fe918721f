"""Topics of the run's stack."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from outbox_kit.kafka.client import KafkaClient
from outbox_kit.pipeline import Kafka
from outbox_kit.stack import StackState


@pytest.fixture
def kafka(state: StackState) -> Kafka:
    return Kafka(bootstrap_servers=state.kafka, replication_factor=1, min_insync_replicas=1)


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[str]:
    name = f"drill-{uuid4().hex[:12]}"
    client = KafkaClient(kafka)
    client.create(name, partitions=2, replication_factor=1, config={})
    yield name
    client.delete(name)
