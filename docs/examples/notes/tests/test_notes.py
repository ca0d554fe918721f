"""A committed event arrives on the topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer

from outbox_kit.sending import emit
from outbox_kit.testing import OutboxStack
from outbox_kit.waiting import Seen, wait_for

pytest_plugins = ["outbox_kit.testing.fixtures"]


@pytest.fixture(scope="session")
def outbox_pipeline() -> Path:
    return Path(__file__).parents[1] / "connectors" / "notes.yaml"


@pytest.fixture
def consumer(outbox_stack: OutboxStack) -> Iterator[Consumer]:
    settings = {
        "bootstrap.servers": outbox_stack.bootstrap_servers,
        "group.id": "test",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe(["notes.note"])
        yield consumer


def test_a_note_arrives(outbox_stack: OutboxStack, consumer: Consumer) -> None:
    with psycopg.connect(outbox_stack.source_dsn) as connection:
        emit(connection, aggregate_type="note", aggregate_id="n-1", event_type="written", payload={"text": "hello"})

    def look() -> Seen[bytes]:
        message = consumer.poll(1.0)
        return Seen(message.key() if message and not message.error() else None, "no record")

    assert wait_for("the note on its topic", look, seconds=30, every=0.01) == b"n-1"
