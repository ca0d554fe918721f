"""Messages of one poll: messages of a partition revoked meanwhile are dropped; none is skipped after an error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition

from outbox_events import Event, Handlers, InvalidRecordError, Receiver, WithoutDeduplication
from outbox_events.receiving import receiver as receivers
from outbox_events.receiving.handler_loop import HandlerLoop
from outbox_events.receiving.recoverers import Failure, dead_letter_record, describe

SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}


@dataclass
class FakeMessage:
    """A record of topic `t` with the methods of a consumer's message."""

    number: int
    place: int

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.place


class FakeConsumer:
    """Returns messages, and runs functions that replace callbacks before the next message."""

    def __init__(self, steps: Sequence[FakeMessage | Callable[[], None]]) -> None:
        self._steps = list(steps)
        self.positions: list[tuple[int, int]] = []

    def poll(self, _: float) -> FakeMessage | None:
        while self._steps:
            step = self._steps.pop(0)
            if isinstance(step, FakeMessage):
                return step
            step()
        return None

    def seek(self, place: TopicPartition) -> None:
        self.positions.append((place.partition, place.offset))


@pytest.fixture
def receiver() -> Iterator[Receiver[Any]]:
    """Return a receiver of an unreachable cluster, whose consumer a test replaces."""
    receiver = Receiver(SETTINGS, ["t"], WithoutDeduplication(psycopg.connect), Handlers())
    consumer = receiver.consumer
    yield receiver
    receiver.consumer = consumer
    receiver.close()


def test_messages_of_a_partition_that_is_revoked_meanwhile_are_dropped(receiver: Receiver[Any]) -> None:
    def revoke() -> None:
        receiver._revoked(receiver.consumer, [TopicPartition("t", 0)])

    again = FakeMessage(0, 1)
    steps = [FakeMessage(0, 1), FakeMessage(1, 7), FakeMessage(0, 2), revoke, again, FakeMessage(1, 8)]
    receiver.consumer = FakeConsumer(steps)  # type: ignore[assignment]
    found: list[Any] = receiver._poll(1)
    assert [(each.number, each.place) for each in found] == [(1, 7), (0, 1), (1, 8)]
    assert found[1] is again


def test_messages_before_an_interrupt_are_polled_again(receiver: Receiver[Any]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    consumer = FakeConsumer([FakeMessage(0, 5), FakeMessage(0, 6), FakeMessage(1, 2), interrupt])
    receiver.consumer = consumer  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        receiver._poll(1)
    assert sorted(consumer.positions) == [(0, 5), (1, 2)]


def test_brokers_that_cannot_be_reached_cause_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(receivers, "JOIN_S", 0.3)
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    with Receiver(settings, ["t"], WithoutDeduplication(psycopg.connect), Handlers()) as receiver:
        for _ in range(10):
            receiver.poll(0.1)
        assert receiver.status().is_alive()
        assert not receiver.status().is_ready()
    # The database of the strategy cannot be reached either.
    warnings = [record for record in caplog.records if "database" not in record.getMessage()]
    names = [record.name for record in warnings if record.levelno >= logging.WARNING]
    assert names == ["outbox_events.receiving.client", "outbox_events.receiving"]
    assert "127.0.0.1:1" in caplog.records[-1].getMessage()


def test_each_type_of_a_topic_without_a_handler_causes_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    handlers = Handlers[None]()
    for topic, event_type in [("t", "x"), ("t", "x"), ("t", "y"), ("u", "x"), ("u", "x")]:
        event = Event(topic, 0, 1, b"", b"", {"event_type": event_type})
        assert handlers.apply([event], None, HandlerLoop().call) == 1
    warned = [record.args for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == [("x", "t"), ("y", "t"), ("x", "u")]


class UnprintableError(InvalidRecordError):
    def __str__(self) -> str:
        raise ValueError


def test_a_dead_letter_has_the_headers_of_the_record() -> None:
    headers = (("trace", b"\x00\xff"), ("tag", b"a"), ("tag", b"b"), ("dead_letter_reason", b"of an earlier attempt"))
    event = Event("t", 0, 5, b"k", b"v", {}, raw_headers=headers)
    sent = dead_letter_record(Failure(event, ValueError(), 3, "g"), "dead letters").headers
    assert sent[:3] == headers[:3]
    assert [value for name, value in sent if name == "dead_letter_reason"] == [b"ValueError"]
    assert describe(UnprintableError("x")) == "UnprintableError"
    error = InvalidRecordError("unknown country \ud800")
    sent = dead_letter_record(Failure(event, error, 3, "g"), "dead letters").headers
    assert b"unknown country \\ud800" in dict(sent)["dead_letter_message"]
