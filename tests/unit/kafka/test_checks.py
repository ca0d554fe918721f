"""What verify says of Kafka."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outbox_kit.kafka import checks
from outbox_kit.kafka.checks import Look
from outbox_kit.kafka.client import TopicState
from outbox_kit.kafka.dead_letters import group_of
from outbox_kit.kafka.state import desired_topics
from outbox_kit.kafka.verify_queries import Cluster, PartitionState
from outbox_kit.pipeline import Environment, Pipeline
from outbox_kit.rules import Check, Status, judge

IDS = [each.id for each in checks.RULES]
GOOD = PartitionState(replicas=3, in_sync=3, led=True)


@pytest.fixture
def look(library: Pipeline, environment: Environment) -> Look:
    """A cluster as apply leaves it."""
    topics = desired_topics(library, environment)
    actual = {topic.name: TopicState(topic.partitions, 3, dict(topic.config)) for topic in topics}
    cluster = Cluster("c1", {topic.name: [GOOD] * topic.partitions for topic in topics})
    return Look(environment.kafka, "c1", topics, actual, cluster, {0: 0})


def run(look: Look) -> dict[str, Check]:
    return {check.id: check for check in judge(checks.RULES, look)}


def not_well(look: Look) -> dict[str, str]:
    return {check.id: check.seen for check in run(look).values() if check.status is not Status.PASS}


def changed(look: Look, topic: str, **settings: str) -> Look:
    """The live topic with other settings."""
    state = look.actual[topic]
    config = {**state.config, **{key.replace("_", "."): value for key, value in settings.items()}}
    return replace(look, actual={**look.actual, topic: replace(state, config=config)})


def test_a_deployed_cluster_passes(look: Look) -> None:
    assert list(run(look)) == IDS
    assert not_well(look) == {}


SETTINGS = [
    ("kafka.cleanup-policy", {"cleanup_policy": "delete"}, "library.book: cleanup.policy is delete, not compact"),
    ("kafka.min-insync", {"min_insync_replicas": "1"}, "library.book: min.insync.replicas is 1, not 2"),
    ("kafka.min-insync", {"min_insync_replicas": "4"}, "library.book needs 4 of 3 replicas"),
    (
        "kafka.timestamp-limit",
        {"message_timestamp_after_max_ms": "3600000"},
        "library.book: message.timestamp.after.max.ms is 3600000, not 9223372036854775807",
    ),
]


@pytest.mark.parametrize(("identifier", "settings", "seen"), SETTINGS, ids=[seen for *_, seen in SETTINGS])
def test_a_setting_is_named_by_its_check_alone(
    look: Look, identifier: str, settings: dict[str, str], seen: str
) -> None:
    assert not_well(changed(look, "library.book", **settings)) == {identifier: seen}


def test_another_setting(look: Look) -> None:
    found = not_well(changed(look, "library.dead-letter", retention_ms="1"))
    assert found == {"kafka.topic-settings": "library.dead-letter: retention.ms is 1, not 2592000000"}


def test_the_size_of_records_is_judged_along_the_path(look: Look) -> None:
    """`path.record-size` compares it with the router and the producer."""
    assert not_well(changed(look, "library.book", max_message_bytes="1")) == {}


def test_a_missing_topic_is_named_once(look: Look) -> None:
    actual = {name: state for name, state in look.actual.items() if name != "library.book"}
    assert not_well(replace(look, actual=actual)) == {"kafka.topics": "missing: library.book"}


def test_a_topic_that_has_grown(look: Look) -> None:
    actual = {**look.actual, "library.book": replace(look.actual["library.book"], partitions=5)}
    assert not_well(replace(look, actual=actual)) == {"kafka.partitions": "library.book has 5, not 4"}


@pytest.mark.parametrize(
    ("partition", "identifier", "seen"),
    [
        (PartitionState(3, 1, True), "kafka.in-sync", "library.book-0: 1 of 3 in sync"),
        (PartitionState(3, 3, False), "kafka.in-sync", "library.book-0: no leader"),
        (PartitionState(2, 2, True), "kafka.replication", "library.book has 2"),
    ],
)
def test_replicas(look: Look, partition: PartitionState, identifier: str, seen: str) -> None:
    partitions = {**look.cluster.partitions, "library.book": [partition, GOOD, GOOD, GOOD]}
    assert not_well(replace(look, cluster=replace(look.cluster, partitions=partitions))) == {identifier: seen}


@pytest.mark.parametrize(
    ("named", "locked", "status"),
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
def test_cluster(look: Look, named: str | None, locked: str | None, status: Status) -> None:
    kafka = look.kafka.model_copy(update={"cluster_id": named})
    assert run(replace(look, kafka=kafka, locked_cluster=locked))["kafka.cluster"].status is status


@pytest.mark.parametrize(
    ("letters", "status", "seen"),
    [
        ({0: 0, 1: 0}, Status.PASS, "none"),
        ({}, Status.PASS, "none"),
        ({0: 2, 1: 1}, Status.FAIL, "3 not acknowledged"),
        (None, Status.UNKNOWN, "this login may not count them"),
    ],
)
def test_dead_letters(look: Look, letters: Any, status: Status, seen: str) -> None:  # noqa: ANN401
    found = run(replace(look, dead_letters=letters))["kafka.dead-letters"]
    assert (found.status, found.seen) == (status, seen)


def test_acknowledgements_are_those_of_a_group() -> None:
    """`outbox dead-letter acknowledge` commits under the same name."""
    assert group_of("library") == "outbox-kit.library.dead-letter"
