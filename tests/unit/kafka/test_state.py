"""Desired topics, planned changes, dangers and rejected states."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outbox_events.errors import RefusedError
from outbox_kit.kafka.client import ActualTopic
from outbox_kit.kafka.state import (
    SETTING_PURPOSES,
    Topic,
    desired_topics,
    diff,
    different_settings,
    refuse_fewer_partitions,
)
from outbox_kit.pipeline import Environment, LockedTopic, Pipeline
from outbox_kit.results.changes import Change

COMMON = {
    "min.insync.replicas": "2",
    "max.message.bytes": "1065536",
    "message.timestamp.after.max.ms": "9223372036854775807",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "unclean.leader.election.enable": "false",
}
STATE_TOPIC = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "604800000",
    "min.compaction.lag.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.2",
    "segment.ms": "86400000",
    **COMMON,
}
FILL = "run `outbox backfill --restart book`"
BOOK = Topic("library.book", 4, STATE_TOPIC, "latest state of every book", aggregate_type="book", backfill_steps=FILL)


def actual_topic(topic: Topic, *, partitions: int | None = None, **settings: str) -> ActualTopic:
    """Return the topic in a cluster, with default settings of the broker."""
    config = {
        "retention.ms": "604800000",
        **topic.config,
        **{key.replace("_", "."): settings[key] for key in settings},
    }
    return ActualTopic(partitions or topic.partitions, 3, config)


def test_lists_every_topic_of_the_connector(library: Pipeline, environment: Environment) -> None:
    actual = {topic.name: topic for topic in desired_topics(library, environment)}
    assert {name: topic.partitions for name, topic in actual.items()} == {
        "library.author": 4,
        "library.book": 4,
        "library.outbox-canary": 1,
        "library.dead-letter": 1,
        "library.dead-letter.acknowledged": 1,
        "__debezium-heartbeat.library": 1,
    }
    assert actual["library.book"] == BOOK
    assert {name: topic.aggregate_type for name, topic in actual.items() if topic.aggregate_type} == {
        "library.author": "author",
        "library.book": "book",
    }
    assert actual["library.dead-letter"].config == {
        "cleanup.policy": "delete",
        "retention.ms": str(30 * 24 * 60 * 60 * 1000),
        **COMMON,
    }
    assert actual["__debezium-heartbeat.library"].config == {
        "cleanup.policy": "delete",
        "retention.ms": "86400000",
        **COMMON,
    }
    assert all(topic.reason for topic in actual.values())


def test_adds_the_transaction_topic_only_when_configured(library: Pipeline, environment: Environment) -> None:
    connector = library.connector.model_copy(update={"transaction_metadata": True})
    changed = library.model_copy(update={"connector": connector})
    names = [topic.name for topic in desired_topics(changed, environment)]
    assert names[-1] == "library.transaction"
    assert "library.transaction" not in [topic.name for topic in desired_topics(library, environment)]


def test_settings_of_the_pipeline_file_take_precedence(library: Pipeline, environment: Environment) -> None:
    book = library.aggregates["book"].model_copy(update={"topic": {"min.insync.replicas": "1", "segment.ms": "60000"}})
    changed = library.model_copy(update={"aggregates": {**library.aggregates, "book": book}})
    topics = {topic.name: topic for topic in desired_topics(changed, environment)}
    assert topics["library.book"].config == {**STATE_TOPIC, "min.insync.replicas": "1", "segment.ms": "60000"}


@pytest.mark.parametrize(
    ("actual", "different"),
    [
        (actual_topic(BOOK), {}),
        (actual_topic(BOOK, flush_ms="5"), {}),
        (actual_topic(BOOK, cleanup_policy="delete"), {"cleanup.policy": ("delete", "compact")}),
        (ActualTopic(4, 3, {}), {key: ("", value) for key, value in STATE_TOPIC.items()}),
    ],
)
def test_reports_different_settings(actual: ActualTopic, different: dict[str, tuple[str, str]]) -> None:
    assert different_settings(BOOK, actual) == different


def test_creates_a_missing_topic() -> None:
    after = "4 partitions, 3 replicas, compact"
    assert diff([BOOK], {}, {}) == [Change("kafka", "topic", "library.book", "create", BOOK.reason, "", after)]


def test_shows_the_replicas_of_a_new_topic(library: Pipeline, environment: Environment) -> None:
    kafka = environment.kafka.model_copy(update={"replication_factor": 5})
    topics = desired_topics(library, environment.model_copy(update={"kafka": kafka}))
    assert all(", 5 replicas, " in change.after for change in diff(topics, {}, {}))


def test_changes_other_settings() -> None:
    actual = {BOOK.name: actual_topic(BOOK, min_insync_replicas="1", segment_ms="5", delete_retention_ms="86400000")}
    (change,) = diff([BOOK], actual, {})
    assert (change.object, change.action, change.danger) == ("topic library.book", "update", "")
    assert change.before == "delete.retention.ms=86400000, min.insync.replicas=1, segment.ms=5"
    assert change.after == "delete.retention.ms=604800000, min.insync.replicas=2, segment.ms=86400000"
    assert "delete.retention.ms: retention of tombstones" in change.reason


@pytest.mark.parametrize(
    ("setting", "value"),
    [("min_cleanable_dirty_ratio", "0.20"), ("segment_ms", "86400000"), ("cleanup_policy", "compact")],
)
def test_compares_values_as_parsed_by_kafka(setting: str, value: str) -> None:
    assert diff([BOOK], {BOOK.name: actual_topic(BOOK, **{setting: value})}, {}) == []


def test_explains_every_setting(library: Pipeline, environment: Environment) -> None:
    for topic in desired_topics(library, environment):
        assert topic.config.keys() <= SETTING_PURPOSES.keys()


def test_reports_added_partitions_as_dangerous() -> None:
    (change,) = diff([BOOK], {BOOK.name: actual_topic(BOOK, partitions=2)}, {})
    assert (change.before, change.after) == ("2 partitions", "4 partitions")
    assert change.reason == "partitions: as declared in the pipeline file; the topic is changed before the connector"
    for message in ("keys move", "tombstones do not reach", "docs/planned-changes.md (Adding partitions)"):
        assert message in change.danger


def test_added_partitions_of_a_topic_without_states_are_not_dangerous() -> None:
    (change,) = diff([replace(DEAD_LETTER, partitions=3)], {DEAD_LETTER.name: actual_topic(DEAD_LETTER)}, RECORDED)
    assert change.danger == ""


RECORDED = {
    BOOK.name: LockedTopic(id="id-1", partitions=4, aggregate_type="book"),
    "library.dead-letter": LockedTopic(id="id-2", partitions=1),
}


def test_reports_a_deleted_topic_as_dangerous() -> None:
    (change,) = diff([BOOK], {}, RECORDED)
    assert change.action == "create"
    assert "deleted outside outbox-kit" in change.reason
    assert change.danger.endswith(f"lacks the states of book that were on the deleted topic; afterwards {FILL}")


def test_reports_a_recreated_topic_as_dangerous() -> None:
    (change,) = diff([BOOK], {BOOK.name: replace(actual_topic(BOOK), id="id-9")}, RECORDED)
    assert (change.action, change.before, change.after) == ("update", "id id-1 (lock file)", "id id-9")
    assert "deleted and created again" in change.reason
    assert FILL in change.danger


def test_a_recreated_topic_with_other_partitions_is_a_new_topic() -> None:
    """Its keys cannot have moved."""
    topic = replace(BOOK, partitions=8)
    (change,) = diff([topic], {topic.name: replace(actual_topic(topic), id="id-9")}, RECORDED)
    assert FILL in change.danger
    assert "keys move" not in change.danger


def test_records_a_recreated_dead_letter_topic_without_danger() -> None:
    (change,) = diff([DEAD_LETTER], {DEAD_LETTER.name: replace(actual_topic(DEAD_LETTER), id="id-9")}, RECORDED)
    assert (change.danger, change.after) == ("", "id id-9")


def test_partitions_added_by_hand_remain_dangerous_when_the_file_declares_them() -> None:
    grown = replace(BOOK, partitions=8)
    (change,) = diff([grown], {BOOK.name: replace(actual_topic(grown), id="id-1")}, RECORDED)
    assert (change.before, change.after) == ("4 partitions (lock file)", "8 partitions")
    assert "keys move" in change.danger


@pytest.mark.parametrize(("actual_id", "recorded_id"), [("id-1", "id-1"), ("", "id-1"), ("id-1", "")])
def test_the_recorded_topic_needs_no_change(actual_id: str, recorded_id: str) -> None:
    """Clusters without topic ids do not identify a topic."""
    recorded = {BOOK.name: LockedTopic(id=recorded_id, partitions=4, aggregate_type="book")}
    assert diff([BOOK], {BOOK.name: replace(actual_topic(BOOK), id=actual_id)}, recorded) == []


DEAD_LETTER = Topic("library.dead-letter", 1, {"cleanup.policy": "delete", **COMMON}, "rows that cannot be routed")


@pytest.mark.parametrize(
    ("topic", "policy", "message"),
    [
        (BOOK, "delete", "compaction removes all but the latest record of each key"),
        (replace(BOOK, config={**STATE_TOPIC, "cleanup.policy": "compact,delete"}), "delete", "compaction removes"),
        (
            replace(BOOK, config={**STATE_TOPIC, "cleanup.policy": "compact,delete"}),
            "compact",
            "records older than the retention are deleted, including the latest states of keys",
        ),
        (DEAD_LETTER, "compact", "records older than the retention are deleted, including the latest"),
        (DEAD_LETTER, "compact,delete", "records older than the retention are deleted"),
    ],
)
def test_reports_a_changed_cleanup_policy_as_dangerous(topic: Topic, policy: str, message: str) -> None:
    (change,) = diff([topic], {topic.name: actual_topic(topic, cleanup_policy=policy)}, {})
    assert message in change.danger


@pytest.mark.parametrize("policy", ["compact,delete", "delete,compact"])
def test_accepts_a_cleanup_policy_that_deletes_less(policy: str) -> None:
    (change,) = diff([BOOK], {BOOK.name: actual_topic(BOOK, cleanup_policy=policy)}, {})
    assert change.danger == ""


RETAINED = Topic(
    "library.dead-letter", 1, {"cleanup.policy": "delete", "retention.ms": "1000"}, "rows that cannot be routed"
)


@pytest.mark.parametrize(
    ("topic", "setting", "before", "message"),
    [
        (RETAINED, "retention_ms", "1001", "retention.ms 1001 → 1000: older records are deleted"),
        (RETAINED, "retention_ms", "-1", "retention.ms -1 → 1000: older records are deleted"),
        (RETAINED, "retention_ms", "999", ""),
        (RETAINED, "retention_ms", "?", ""),
        (replace(RETAINED, config={**RETAINED.config, "retention.ms": "-1"}), "retention_ms", "1000", ""),
        (
            replace(RETAINED, config={**RETAINED.config, "retention.bytes": "5"}),
            "retention_bytes",
            "-1",
            "oldest records",
        ),
        (
            replace(RETAINED, config={**RETAINED.config, "delete.retention.ms": "5"}),
            "delete_retention_ms",
            "9",
            "",
        ),
        (BOOK, "delete_retention_ms", "604800001", "delete.retention.ms 604800001 → 604800000: tombstones are deleted"),
        (BOOK, "delete_retention_ms", "86400000", ""),
        (replace(BOOK, config={**STATE_TOPIC, "retention.ms": "5"}), "retention_ms", "9", ""),
    ],
)
def test_reports_a_shorter_retention_as_dangerous(topic: Topic, setting: str, before: str, message: str) -> None:
    """Only settings that the cleanup policy uses are reported. For a compacted topic, retention.ms has no effect."""
    (change,) = diff([topic], {topic.name: actual_topic(topic, **{setting: before})}, {})
    assert message in change.danger
    assert bool(message) is bool(change.danger)


def test_reports_a_shorter_dead_letter_retention_as_dangerous(library: Pipeline, environment: Environment) -> None:
    topics = desired_topics(library, environment)
    shorter = library.model_copy(
        update={"dead_letter": library.dead_letter.model_copy(update={"retention_days": 1})},
    )
    (change,) = diff(desired_topics(shorter, environment), {topic.name: actual_topic(topic) for topic in topics}, {})
    assert "unacknowledged dead letters" in change.danger


def test_changes_follow_the_order_of_the_topics(library: Pipeline, environment: Environment) -> None:
    topics = desired_topics(library, environment)
    assert [change.object for change in diff(topics, {}, {})] == [f"topic {topic.name}" for topic in topics]


def test_returns_no_changes(library: Pipeline, environment: Environment) -> None:
    topics = desired_topics(library, environment)
    actual = {topic.name: actual_topic(topic) for topic in topics}
    assert diff(topics, actual, {}) == []
    refuse_fewer_partitions(topics, actual)


@pytest.mark.parametrize("partitions", [5, 8])
def test_rejects_fewer_partitions(partitions: int) -> None:
    for topic, hint in ((BOOK, "Adding partitions"), (DEAD_LETTER, f"set `partitions` to {partitions}")):
        with pytest.raises(RefusedError) as caught:
            refuse_fewer_partitions([topic], {topic.name: actual_topic(topic, partitions=partitions)})
        assert f"topic {topic.name} has {partitions} partitions" in caught.value.message
        assert hint in caught.value.hint


def test_accepts_a_missing_topic() -> None:
    refuse_fewer_partitions([BOOK], {})
