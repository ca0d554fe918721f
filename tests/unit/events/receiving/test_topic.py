"""Requests for a topic whose partitions have no leader for a moment, which a broker of a test does not do on demand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from outbox_events.latest_state.topic import NoLeaderError, TopicDescription, TopicRequests, unreadable
from outbox_kit.errors import UnreachableError

DESCRIPTION = TopicDescription("id-1", {0: 0}, {0: 1})
NO_LEADER = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)


def requests(monkeypatch: pytest.MonkeyPatch, results: Iterator[KafkaError | None], seconds: float) -> TopicRequests:
    """Return requests that fail with the errors; None is a success."""

    def describe(_: TopicRequests) -> TopicDescription:
        error = next(results)
        if error is not None:
            raise unreadable("library.author", error)
        return DESCRIPTION

    monkeypatch.setattr(TopicRequests, "_describe", describe)
    return TopicRequests({"bootstrap.servers": "127.0.0.1:1"}, "library.author", seconds)


def test_waits_for_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter([NO_LEADER, KafkaError(KafkaError.LEADER_NOT_AVAILABLE), None])
    assert requests(monkeypatch, results, 30).describe() == DESCRIPTION


def test_wait_for_a_leader_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoLeaderError):
        requests(monkeypatch, iter([NO_LEADER] * 100), 0.3).describe()


def test_other_errors_are_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter([KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), None])
    with pytest.raises(UnreachableError) as caught:
        requests(monkeypatch, results, 30).describe()
    assert not isinstance(caught.value, NoLeaderError)
