"""Topics: what the connector needs, what is changed, what is refused, and what verify says."""

from __future__ import annotations

from typing import Any

import pytest

from outbox_kit.changes import Change
from outbox_kit.checking import Check, Status
from outbox_kit.errors import RefusedError
from outbox_kit.kafka import checks
from outbox_kit.kafka.client import TopicState
from outbox_kit.kafka.state import Topic, desired_topics, diff, different_settings, refuse_unsafe
from outbox_kit.pipeline import Environment, Pipeline

# The record's timestamp is the commit time: a clock that is ahead must not stop the connector.
COMMON = {
    "min.insync.replicas": "2",
    "max.message.bytes": "1065536",
    "message.timestamp.after.max.ms": "9223372036854775807",
}
COMPACT = {"cleanup.policy": "compact", **COMMON}
BOOK = Topic("library.book", 4, COMPACT, "newest state of every book")


def live(topic: Topic, *, partitions: int | None = None, **settings: str) -> TopicState:
    """The topic as a cluster would have it: with the broker's own settings beside ours."""
    config = {
        "retention.ms": "604800000",
        **topic.config,
        **{key.replace("_", "."): settings[key] for key in settings},
    }
    return TopicState(partitions or topic.partitions, 3, config)


def test_every_topic_that_the_connector_writes_to(library: Pipeline, environment: Environment) -> None:
    found = {topic.name: topic for topic in desired_topics(library, environment)}
    assert {name: topic.partitions for name, topic in found.items()} == {
        "library.author": 4,
        "library.book": 4,
        "library.outbox-canary": 1,
        "library.dead-letter": 1,
        "__debezium-heartbeat.library": 1,
    }
    assert found["library.book"] == BOOK
    assert found["library.dead-letter"].config == {
        "cleanup.policy": "delete",
        "retention.ms": str(30 * 24 * 60 * 60 * 1000),
        **COMMON,
    }
    assert found["__debezium-heartbeat.library"].config == {
        "cleanup.policy": "delete",
        "retention.ms": "86400000",
        **COMMON,
    }
    assert all(topic.why for topic in found.values())


def test_the_topic_of_transaction_boundaries_only_when_asked_for(library: Pipeline, environment: Environment) -> None:
    connector = library.connector.model_copy(update={"transaction_metadata": True})
    asked = library.model_copy(update={"connector": connector})
    names = [topic.name for topic in desired_topics(asked, environment)]
    assert names[-1] == "library.transaction"
    assert "library.transaction" not in [topic.name for topic in desired_topics(library, environment)]


def test_settings_of_the_pipeline_file_win_over_the_kits(library: Pipeline, environment: Environment) -> None:
    book = library.aggregates["book"].model_copy(update={"topic": {"min.insync.replicas": "1", "segment.ms": "60000"}})
    changed = library.model_copy(update={"aggregates": {**library.aggregates, "book": book}})
    topics = {topic.name: topic for topic in desired_topics(changed, environment)}
    assert topics["library.book"].config == {**COMPACT, "min.insync.replicas": "1", "segment.ms": "60000"}


@pytest.mark.parametrize(
    ("actual", "different"),
    [
        (live(BOOK), {}),
        (live(BOOK, segment_ms="5"), {}),
        (live(BOOK, cleanup_policy="delete"), {"cleanup.policy": ("delete", "compact")}),
        (
            TopicState(4, 3, {}),
            {
                "cleanup.policy": ("", "compact"),
                "min.insync.replicas": ("", "2"),
                "max.message.bytes": ("", "1065536"),
                "message.timestamp.after.max.ms": ("", "9223372036854775807"),
            },
        ),
    ],
)
def test_different_settings(actual: TopicState, different: dict[str, tuple[str, str]]) -> None:
    assert different_settings(BOOK, actual) == different


def test_a_missing_topic_is_created() -> None:
    assert diff([BOOK], {}) == [Change("kafka", "topic library.book", "create", BOOK.why, "", "4 partitions, compact")]


def test_other_settings_are_changed() -> None:
    actual = {BOOK.name: live(BOOK, cleanup_policy="delete", min_insync_replicas="1")}
    assert diff([BOOK], actual) == [
        Change(
            "kafka",
            "topic library.book",
            "update",
            BOOK.why,
            "cleanup.policy=delete, min.insync.replicas=1",
            "cleanup.policy=compact, min.insync.replicas=2",
        )
    ]


def test_changes_follow_the_order_of_the_topics(library: Pipeline, environment: Environment) -> None:
    topics = desired_topics(library, environment)
    assert [change.object for change in diff(topics, {})] == [f"topic {topic.name}" for topic in topics]


def test_nothing_to_change(library: Pipeline, environment: Environment) -> None:
    topics = desired_topics(library, environment)
    actual = {topic.name: live(topic) for topic in topics}
    assert diff(topics, actual) == []
    refuse_unsafe(topics, actual)


@pytest.mark.parametrize("partitions", [1, 3, 5, 8])
def test_another_partition_count_is_refused(partitions: int) -> None:
    with pytest.raises(RefusedError) as caught:
        refuse_unsafe([BOOK], {BOOK.name: live(BOOK, partitions=partitions)})
    message = f"topic library.book has {partitions} partitions, the pipeline file says 4: "
    assert caught.value.message.startswith(message)
    assert "republish" in caught.value.hint


def test_a_missing_topic_is_not_unsafe() -> None:
    refuse_unsafe([BOOK], {})


def failed(topics: list[Topic], actual: dict[str, TopicState]) -> dict[str, str]:
    found: list[Check] = checks.run(topics, actual)
    assert [check.id for check in found] == ["kafka.topics", "kafka.partitions", "kafka.topic-settings"]
    assert all(bool(check.remedy) is (check.status is Status.FAIL) for check in found)
    return {check.id: check.seen for check in found if check.status is Status.FAIL}


OTHER = Topic("library.author", 4, COMPACT, "newest state of every author")
CHECKED: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({BOOK.name: live(BOOK), OTHER.name: live(OTHER)}, {}),
    ({BOOK.name: live(BOOK)}, {"kafka.topics": "missing: library.author"}),
    ({}, {"kafka.topics": "missing: library.author, library.book"}),
    (
        {BOOK.name: live(BOOK, partitions=2), OTHER.name: live(OTHER)},
        {"kafka.partitions": "library.book has 2, not 4"},
    ),
    (
        {BOOK.name: live(BOOK, cleanup_policy="delete"), OTHER.name: live(OTHER)},
        {"kafka.topic-settings": "library.book: cleanup.policy is delete, not compact"},
    ),
]


@pytest.mark.parametrize(("actual", "expected"), CHECKED)
def test_checks(actual: dict[str, TopicState], expected: dict[str, str]) -> None:
    assert failed([BOOK, OTHER], actual) == expected
