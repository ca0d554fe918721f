"""Requests for partitions that temporarily have no leader, which a test cannot cause on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from outbox_events.kafka import topic_requests
from outbox_events.kafka.topic_requests import Bounds

NO_LEADER = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)


@dataclass
class Admin:
    """Client whose requests fail with these errors. None stands for success."""

    results: Iterator[KafkaError | None]
    offset: int = 7
    refreshed: int = 0

    def list_topics(self, topic: str, timeout: float) -> None:
        assert (topic, timeout > 0) == ("t", True)
        self.refreshed += 1

    def list_offsets(self, specs: dict[TopicPartition, object], **_: object) -> dict[TopicPartition, Future[Any]]:
        error, future = next(self.results), Future[Any]()
        if error is None:
            future.set_result(self)
        else:
            future.set_exception(KafkaException(error))
        return dict.fromkeys(specs, future)


def bounds(*results: KafkaError | None, seconds: float) -> dict[int, Bounds]:
    return topic_requests.bounds(Admin(iter(results)), "t", [0], seconds=seconds)  # type: ignore[arg-type]


def test_waits_for_a_leader() -> None:
    codes = KafkaError.LEADER_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH
    results = [NO_LEADER, *map(KafkaError, codes), None, NO_LEADER, None]
    assert bounds(*results, seconds=30) == {0: Bounds(7, 7)}


def test_reads_the_leaders_again_before_the_next_request() -> None:
    """The client sends the leader epoch that it knows, and would never send another one."""
    admin = Admin(iter([KafkaError(KafkaError.FENCED_LEADER_EPOCH), KafkaError(KafkaError._NOENT), None]))
    assert topic_requests.offsets(admin, "t", [0], topic_requests.EARLIEST, seconds=30) == {0: 7}  # type: ignore[arg-type]
    assert admin.refreshed == 2


def test_wait_for_a_leader_is_bounded() -> None:
    with pytest.raises(KafkaException):
        bounds(*[NO_LEADER] * 100, seconds=0.3)


def test_other_errors_are_raised_at_once() -> None:
    with pytest.raises(KafkaException):
        bounds(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), None, None, seconds=30)


def test_equal_settings_share_a_client_while_it_is_in_use() -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "letters", "log_level": 0}
    client = topic_requests.admin_client(settings)
    assert topic_requests.admin_client({**settings, "on_commit": lambda *_: None}) is client
    assert topic_requests.admin_client({**settings, "group.id": "statistics"}) is not client
