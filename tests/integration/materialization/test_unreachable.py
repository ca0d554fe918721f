"""Errors of servers that do not respond or reject the login."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException
from msgspec import structs
from tests.integration.materialization.warehouse import warehouse

from outbox_events.errors import UnreachableError
from outbox_events.kafka import topic_requests
from outbox_kit.stack import StackState
from outbox_spark.kafka import offset_ranges
from outbox_spark.kafka.offset_ranges import ClusterUnreachableError, TopicAdmin
from outbox_spark.sinks.postgres.connection import read_only_connection


def test_a_wrong_password_leads_to_the_variable_that_contains_it(state: StackState) -> None:
    target = structs.replace(warehouse(state), password="wrong")
    with (
        pytest.raises(UnreachableError, match="password authentication failed") as caught,
        read_only_connection(target),
    ):
        pass
    assert "environment variable" in caught.value.hint


def test_a_leader_that_does_not_respond_is_no_reason_to_give_up_other_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_response(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(topic_requests, "describe", lambda *_: {"any": ("id", [0])})
    monkeypatch.setattr(topic_requests, "bounds_of_topics", no_response)
    with pytest.raises(UnreachableError) as caught:
        TopicAdmin({"bootstrap.servers": "127.0.0.1:1"}).describe("any")
    assert not isinstance(caught.value, ClusterUnreachableError)


def test_brokers_that_do_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_ranges, "REQUEST_SECONDS", 1.0)
    with pytest.raises(ClusterUnreachableError, match=r"127\.0\.0\.1:1"):
        TopicAdmin({"bootstrap.servers": "127.0.0.1:1"}).describe("any")
