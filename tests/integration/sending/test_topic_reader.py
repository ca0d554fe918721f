"""The end of a topic whose last offsets belong to open, aborted or committed transactions."""

from __future__ import annotations

from threading import Timer

import pytest
from confluent_kafka import IsolationLevel, Message, Producer
from tests.integration.sending.producing_support import World, world

from outbox_events import fence
from outbox_events.errors import UnreachableError, WaitTimeoutError
from outbox_events.kafka.topic_reader import read_bounds, read_records

pytestmark = pytest.mark.integration
__all__ = ["world"]

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
SECONDS = 30


def send(world: World, producer: Producer, value: bytes) -> None:
    producer.produce(world.topic, value, b"key", 0)
    assert producer.flush(SECONDS) == 0


def transactional(world: World) -> Producer:
    producer = world.producer()
    fence(producer)
    producer.begin_transaction()
    return producer


def read(world: World, level: IsolationLevel, *, seconds: float = SECONDS) -> list[bytes | str | None]:
    """Return the values up to the end at the time of the call. This must not require a later record."""
    messages: list[Message] = []
    read_records(world.settings, read_bounds(world.settings, [world.topic], level), messages.append, seconds=seconds)
    return [message.value() for message in messages]


@pytest.mark.parametrize("level", [COMMITTED, UNCOMMITTED])
def test_aborted_records_and_markers_at_the_end(world: World, level: IsolationLevel) -> None:
    send(world, world.producer(transactional=False), b"first")
    producer = transactional(world)
    send(world, producer, b"aborted")
    producer.abort_transaction(SECONDS)
    assert read(world, UNCOMMITTED) == [b"first"]  # waits for the marker
    assert read(world, level) == [b"first"]


def test_a_topic_with_nothing_but_an_aborted_record(world: World) -> None:
    producer = transactional(world)
    send(world, producer, b"aborted")
    producer.abort_transaction(SECONDS)
    assert read(world, UNCOMMITTED) == []


def test_an_open_transaction_at_the_end(world: World) -> None:
    plain, producer = world.producer(transactional=False), transactional(world)
    send(world, plain, b"first")
    send(world, producer, b"open")
    send(world, plain, b"behind it")
    assert read(world, COMMITTED) == [b"first"]
    with pytest.raises(WaitTimeoutError):
        read(world, UNCOMMITTED, seconds=1)
    end = Timer(1, producer.commit_transaction, [SECONDS])
    end.start()
    assert read(world, UNCOMMITTED) == [b"first", b"open", b"behind it"]
    end.join()


def test_records_that_follow_the_end_are_not_read(world: World) -> None:
    plain = world.producer(transactional=False)
    send(world, plain, b"first")
    ranges = read_bounds(world.settings, [world.topic], COMMITTED)
    send(world, plain, b"second")
    messages: list[Message] = []
    read_records(world.settings, ranges, messages.append, seconds=SECONDS)
    assert [message.value() for message in messages] == [b"first"]


def test_a_missing_topic_is_an_error(world: World) -> None:
    with pytest.raises(UnreachableError, match="cannot read topic missing: "):
        read_bounds(world.settings, ["missing"], COMMITTED)
