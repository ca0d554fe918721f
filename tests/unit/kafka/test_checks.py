"""Checks of `outbox verify` on Kafka."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outbox_kit.kafka import checks
from outbox_kit.kafka.checks import KafkaState
from outbox_kit.kafka.client import ActualTopic
from outbox_kit.kafka.dead_letters import group_of
from outbox_kit.kafka.state import desired_topics
from outbox_kit.kafka.verify_queries import Cluster, PartitionState
from outbox_kit.pipeline import Environment, Pipeline
from outbox_kit.rules import Check, Status, evaluate

IDS = [rule.id for rule in checks.RULES]
IN_SYNC = PartitionState(replica_count=3, in_sync_count=3, has_leader=True)


@pytest.fixture
def state(library: Pipeline, environment: Environment) -> KafkaState:
    """Return the state of a cluster after apply."""
    topics = desired_topics(library, environment)
    actual = {topic.name: ActualTopic(topic.partitions, 3, dict(topic.config)) for topic in topics}
    cluster = Cluster("c1", {topic.name: [IN_SYNC] * topic.partitions for topic in topics})
    return KafkaState(environment.kafka, "c1", topics, actual, cluster, 0)


def run(state: KafkaState) -> dict[str, Check]:
    return {check.id: check for check in evaluate(checks.RULES, state)}


def not_passed(state: KafkaState) -> dict[str, str]:
    return {check.id: check.seen for check in run(state).values() if check.status is not Status.PASS}


def changed(state: KafkaState, topic: str, **settings: str) -> KafkaState:
    """Return the live topic with other settings."""
    topic_state = state.actual[topic]
    config = {**topic_state.config, **{key.replace("_", "."): value for key, value in settings.items()}}
    return replace(state, actual={**state.actual, topic: replace(topic_state, config=config)})


def test_passes_for_a_deployed_cluster(state: KafkaState) -> None:
    assert list(run(state)) == IDS
    assert not_passed(state) == {}


SETTINGS = [
    ("kafka.cleanup-policy", {"cleanup_policy": "delete"}, "library.book: cleanup.policy is delete, not compact"),
    ("kafka.min-insync", {"min_insync_replicas": "1"}, "library.book: min.insync.replicas is 1, not 2"),
    ("kafka.min-insync", {"min_insync_replicas": "4"}, "library.book needs 4 in-sync replicas, but has 3 replicas"),
    (
        "kafka.timestamp-limit",
        {"message_timestamp_after_max_ms": "3600000"},
        "library.book: message.timestamp.after.max.ms is 3600000, not 9223372036854775807",
    ),
]


@pytest.mark.parametrize(("identifier", "settings", "seen"), SETTINGS, ids=[seen for *_, seen in SETTINGS])
def test_setting_fails_exactly_its_check(
    state: KafkaState, identifier: str, settings: dict[str, str], seen: str
) -> None:
    assert not_passed(changed(state, "library.book", **settings)) == {identifier: seen}


def test_reports_another_setting(state: KafkaState) -> None:
    actual = not_passed(changed(state, "library.dead-letter", retention_ms="1"))
    assert actual == {"kafka.topic-settings": "library.dead-letter: retention.ms is 1, not 2592000000"}


def test_checks_the_record_size_along_the_path(state: KafkaState) -> None:
    """`path.record-size` reports max.message.bytes."""
    assert not_passed(changed(state, "library.book", max_message_bytes="1")) == {}


def test_reports_a_missing_topic_once(state: KafkaState) -> None:
    actual = {name: topic_state for name, topic_state in state.actual.items() if name != "library.book"}
    assert not_passed(replace(state, actual=actual)) == {"kafka.topics": "missing: library.book"}


def test_reports_added_partitions(state: KafkaState) -> None:
    actual = {**state.actual, "library.book": replace(state.actual["library.book"], partitions=5)}
    assert not_passed(replace(state, actual=actual)) == {"kafka.partitions": "library.book has 5, not 4"}


@pytest.mark.parametrize(
    ("partition", "identifier", "seen"),
    [
        (PartitionState(3, 1, True), "kafka.in-sync", "library.book-0: 1 of 3 in sync"),
        (PartitionState(3, 3, False), "kafka.in-sync", "library.book-0: no leader"),
        (PartitionState(2, 2, True), "kafka.replication", "library.book has 2 replicas"),
    ],
)
def test_replicas(state: KafkaState, partition: PartitionState, identifier: str, seen: str) -> None:
    partitions = {**state.cluster.partitions, "library.book": [partition, IN_SYNC, IN_SYNC, IN_SYNC]}
    assert not_passed(replace(state, cluster=replace(state.cluster, partitions=partitions))) == {identifier: seen}


@pytest.mark.parametrize(
    ("configured", "locked", "status"),
    [
        (None, None, Status.UNKNOWN),
        ("c1", None, Status.PASS),
        (None, "c1", Status.PASS),
        ("c1", "c1", Status.PASS),
        ("c2", None, Status.FAIL),
        (None, "c2", Status.FAIL),
        ("c1", "c2", Status.FAIL),
    ],
)
def test_cluster(state: KafkaState, configured: str | None, locked: str | None, status: Status) -> None:
    kafka = state.kafka.model_copy(update={"cluster_id": configured})
    assert run(replace(state, kafka=kafka, recorded_cluster_id=locked))["kafka.cluster"].status is status


@pytest.mark.parametrize(
    ("letters", "status", "seen"),
    [
        (0, Status.PASS, "no records after the acknowledged offsets"),
        (3, Status.FAIL, "3 unacknowledged dead letters"),
        (None, Status.UNKNOWN, "the dead letters could not be counted"),
    ],
)
def test_dead_letters(state: KafkaState, letters: int | None, status: Status, seen: str) -> None:
    actual = run(replace(state, dead_letter_count=letters))["kafka.dead-letters"]
    assert (actual.status, actual.seen) == (status, seen)


def test_reads_acknowledgements_of_the_group(library: Pipeline) -> None:
    """The name must not change: the group has the acknowledged offsets of existing pipelines."""
    assert group_of(library) == "outbox-kit.library.dead-letter"
