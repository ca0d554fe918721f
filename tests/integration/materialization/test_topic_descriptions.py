"""Descriptions of topics that are requested from a broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from outbox_events.errors import ConfigurationError
from outbox_kit.stack import StackState
from outbox_spark.kafka.offset_ranges import TopicAdmin

STATES, EVENTS, EMPTY = NAMES = ["described.states", "described.events", "described.empty"]


@pytest.fixture(scope="module")
def admin(state: StackState) -> Iterator[TopicAdmin]:
    kafka = {"bootstrap.servers": state.kafka}
    client = AdminClient(dict(kafka))
    settings = {
        STATES: {"cleanup.policy": "compact", "delete.retention.ms": "5000"},
        EVENTS: {"cleanup.policy": "delete"},
        EMPTY: {},
    }
    topics = [NewTopic(name, 2, 1, config=config) for name, config in settings.items()]
    for future in client.create_topics(topics).values():
        future.result(30)
    producer = Producer(kafka)
    for number, name in enumerate((STATES, EVENTS), start=1):
        for _ in range(number):
            producer.produce(name, b"value", b"key", partition=1)
    assert producer.flush(30) == 0
    yield TopicAdmin(kafka)
    for future in client.delete_topics(NAMES).values():
        future.result(30)


def test_describes_several_topics_at_once(admin: TopicAdmin) -> None:
    described = admin.describe_all(NAMES)
    assert {name: topic.end_offsets for name, topic in described.items()} == {
        STATES: {0: 0, 1: 1},
        EVENTS: {0: 0, 1: 2},
        EMPTY: {0: 0, 1: 0},
    }
    assert [described[name].is_deleted for name in NAMES] == [False, True, True]
    assert described[STATES].delete_retention == timedelta(seconds=5)
    assert described == {name: admin.describe(name) for name in NAMES}


def test_names_the_topics_of_which_one_does_not_exist(admin: TopicAdmin) -> None:
    with pytest.raises(ConfigurationError, match="missing"):
        admin.describe_all([STATES, "described.missing"])
