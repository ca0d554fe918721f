"""Committed events arrive on the topic in commit order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer

from outbox_events import Observation, emit, wait_for
from outbox_kit.testing import OutboxStack

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


def test_delivers_a_note_and_its_deletion_in_order(outbox_stack: OutboxStack, consumer: Consumer) -> None:
    with psycopg.connect(outbox_stack.source_dsn) as connection:
        emit(connection, aggregate_type="note", aggregate_id="n-1", event_type="written", payload={"text": "hello"})
        emit(connection, aggregate_type="note", aggregate_id="n-1", event_type="removed", payload=None)
    arrived: list[tuple[bytes, bool]] = []

    def poll() -> Observation[bool]:
        message = consumer.poll(1.0)
        # `if message` would skip tombstones, because a message without a value is false.
        if message is not None and not message.error():
            arrived.append((message.key(), message.value() is None))
        return Observation(True if len(arrived) == 2 else None, f"{len(arrived)} of 2 records")

    wait_for("the note and its tombstone", poll, seconds=30, interval=0.01)
    assert arrived == [(b"n-1", False), (b"n-1", True)]
