"""Waits of the transactional producer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from outbox_events.errors import RejectedError, UnreachableError
from outbox_events.kafka.record import Record
from outbox_kit.pipeline import Kafka
from outbox_kit.relay import producer
from outbox_kit.relay.producer import BucketProducer


class SmallQueue:
    """A producer whose queue has room for one record until poll() is called."""

    def __init__(self, _: object = None) -> None:
        self.queued: list[bytes] = []
        self.sent: list[bytes] = []
        self.is_aborted = False

    def init_transactions(self, _: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def produce(self, _: str, *, key: bytes, **__: object) -> None:
        if self.queued:
            raise BufferError("Local: Queue full")
        self.queued.append(key)

    def poll(self, _: float) -> None:
        self.sent += self.queued
        self.queued.clear()

    def commit_transaction(self, _: float) -> None:
        self.poll(0)

    def abort_transaction(self, _: float) -> None:
        self.is_aborted = True


class FullQueue(SmallQueue):
    """A producer that never sends."""

    def poll(self, _: float) -> None: ...


class RejectedTopic(SmallQueue):
    """A producer that rejects every record."""

    def produce(self, _: str, *, key: bytes, **__: object) -> None:
        del key
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


class FencedProducer(SmallQueue):
    """A producer whose transactional id another producer has initialized."""

    def commit_transaction(self, _: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED))


RECORDS = [Record("t", key, b"") for key in (b"a", b"b", b"c")]


def sender(
    monkeypatch: pytest.MonkeyPatch, fake: SmallQueue, keep_lease: Callable[[], None] = lambda: None
) -> BucketProducer:
    monkeypatch.setattr(producer, "Producer", lambda _: fake)
    return BucketProducer(Kafka(bootstrap_servers="k:9092"), "outbox-relay.p.0", keep_lease)


def test_a_batch_can_be_larger_than_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SmallQueue()
    kept: list[bool] = []
    subject = sender(monkeypatch, fake, lambda: kept.append(True))
    subject.send(RECORDS)
    subject.commit()
    assert fake.sent == [b"a", b"b", b"c"]
    assert kept, "the lease is kept during the waits"
    assert not fake.is_aborted


def test_aborts_the_transaction_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, read_committed consumers would wait until the transaction times out."""
    rejected = RejectedTopic()
    with pytest.raises(RejectedError):
        sender(monkeypatch, rejected).send(RECORDS)
    assert rejected.is_aborted

    fenced = FencedProducer()
    subject = sender(monkeypatch, fenced)
    subject.send(RECORDS)
    with pytest.raises(RejectedError):
        subject.commit()
    assert fenced.is_aborted

    monkeypatch.setattr(producer, "SEND_TIMEOUT_S", 0)
    full = FullQueue()
    with pytest.raises(UnreachableError):
        sender(monkeypatch, full).send(RECORDS)
    assert full.is_aborted


def test_aborts_the_transaction_if_the_lease_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_lease() -> None:
        raise ConnectionError

    fake = SmallQueue()
    with pytest.raises(ConnectionError):
        sender(monkeypatch, fake, keep_lease).send(RECORDS)
    assert fake.is_aborted
