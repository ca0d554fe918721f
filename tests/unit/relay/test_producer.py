"""Waits of the transactional producer."""

from __future__ import annotations

import pytest

from outbox_kit.pipeline import Kafka
from outbox_kit.relay import producer
from outbox_kit.relay.producer import BucketProducer
from outbox_kit.sending.record import Record


class SmallQueue:
    """A producer whose queue has room for one record until poll() is called."""

    def __init__(self, _: object) -> None:
        self.queued: list[bytes] = []
        self.sent: list[bytes] = []

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


def test_a_batch_can_be_larger_than_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[SmallQueue] = []
    kept: list[bool] = []

    def create(settings: object) -> SmallQueue:
        created.append(SmallQueue(settings))
        return created[0]

    monkeypatch.setattr(producer, "Producer", create)
    subject = BucketProducer(Kafka(bootstrap_servers="k:9092"), "outbox-relay.p.0", lambda: kept.append(True))
    subject.send([Record("t", key, b"") for key in (b"a", b"b", b"c")])
    assert created[0].sent == [b"a", b"b", b"c"]
    assert len(kept) == 2, "the lease is kept during the waits"
