"""Checks of `outbox verify` on Kafka."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from tests.unit.fake_kafka import FakeKafka
from tests.unit.kafka_samples import actual_topics, locked_topics

from outbox_kit.kafka import checks
from outbox_kit.kafka.checks import KafkaState
from outbox_kit.kafka.client import ActualTopic, KafkaClient
from outbox_kit.kafka.state import desired_topics
from outbox_kit.kafka.verify_queries import DEFAULT_NAMES, Cluster, InternalTopic, PartitionState, read_internal_topics
from outbox_kit.pipeline import Environment, Pipeline
from outbox_kit.results.checks import Check, Status, evaluate

IDS = [rule.id for rule in checks.RULES]
COMPACTED = ActualTopic(1, 3, {"cleanup.policy": "compact"})
INTERNAL_TOPICS = [InternalTopic(key, name, False, COMPACTED) for key, name in DEFAULT_NAMES.items()]
IN_SYNC = PartitionState(replica_count=3, in_sync_count=3, has_leader=True)


@pytest.fixture
def state(library: Pipeline, environment: Environment) -> KafkaState:
    """Return the state of a cluster after apply."""
    topics = desired_topics(library, environment)
    cluster = Cluster("c1", {topic.name: [IN_SYNC] * topic.partitions for topic in topics})
    return KafkaState(
        library,
        environment.kafka,
        "c1",
        locked_topics(topics),
        topics,
        actual_topics(topics),
        cluster,
        dead_letter_count=0,
        misplaced_keys={},
        internal_topics=INTERNAL_TOPICS,
    )


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
    (
        "kafka.timestamp-limit",
        {"message_timestamp_before_max_ms": "5000"},
        "library.book: message.timestamp.before.max.ms is 5000, not 9223372036854775807",
    ),
    (
        "kafka.unclean-election",
        {"unclean_leader_election_enable": "true"},
        "library.book: unclean.leader.election.enable is true, not false",
    ),
]


@pytest.mark.parametrize(("identifier", "settings", "seen"), SETTINGS, ids=[seen for *_, seen in SETTINGS])
def test_setting_fails_exactly_its_check(
    state: KafkaState, identifier: str, settings: dict[str, str], seen: str
) -> None:
    assert not_passed(changed(state, "library.book", **settings)) == {identifier: seen}


@pytest.mark.parametrize(("milliseconds", "is_lower"), [("1000", True), ("9999999999", False)])
def test_a_lower_retention_of_tombstones_may_have_removed_some(
    state: KafkaState, milliseconds: str, is_lower: bool
) -> None:
    check = run(changed(state, "library.book", delete_retention_ms=milliseconds))["kafka.topic-settings"]
    assert check.status is Status.FAIL
    assert ("outbox-reconcile" in check.remedy) == is_lower


def internal(state: KafkaState, actual: ActualTopic | None, *, named: bool = True) -> Check:
    """Return the check of the internal topics, whose config topic is `actual`."""
    config_topic = InternalTopic("config_topic", "connect-configs", named, actual)
    return run(replace(state, internal_topics=[config_topic, *INTERNAL_TOPICS[1:]]))["connect.internal-topics"]


@pytest.mark.parametrize(
    ("actual", "seen", "remedy"),
    [
        (
            replace(COMPACTED, config={"cleanup.policy": "delete"}),
            "connect-configs: cleanup.policy is delete",
            "--add-config cleanup.policy=compact",
        ),
        (replace(COMPACTED, config={"cleanup.policy": "compact,delete"}), "is compact,delete", "kafka-configs"),
        (replace(COMPACTED, partitions=25), "connect-configs has 25 partitions", "one partition"),
        (replace(COMPACTED, replication_factor=1), "connect-configs has 1 replicas", "kafka-reassign-partitions"),
        (None, "not found, or not visible to this login: connect-configs", "connect.config_topic"),
    ],
)
def test_reports_internal_topics_that_lose_entries(
    state: KafkaState, actual: ActualTopic | None, seen: str, remedy: str
) -> None:
    check = internal(state, actual)
    assert check.status is Status.FAIL
    assert seen in check.seen
    assert remedy in check.remedy


def test_names_of_internal_topics_are_those_of_the_environment_file(environment: Environment) -> None:
    service = environment.connect.model_copy(update={"config_topic": "configs", "offset_topic": "offsets"})
    kafka = FakeKafka({"offsets": COMPACTED, "connect-configs": COMPACTED, "connect-status": COMPACTED})
    assert read_internal_topics(cast("KafkaClient", kafka), service) == [
        InternalTopic("config_topic", "configs", True, None),
        InternalTopic("offset_topic", "offsets", True, COMPACTED),
        InternalTopic("status_topic", "connect-status", False, COMPACTED),
    ]


def test_only_the_config_topic_needs_a_single_partition(state: KafkaState) -> None:
    offsets = InternalTopic("offset_topic", "connect-offsets", True, replace(COMPACTED, partitions=25))
    assert not_passed(replace(state, internal_topics=[INTERNAL_TOPICS[0], offsets])) == {}


def test_internal_topics_are_unknown_if_nothing_names_them(state: KafkaState) -> None:
    """A worker may use names that differ from the defaults."""
    check = internal(state, None, named=False)
    assert check.status is Status.UNKNOWN
    assert "connect.config_topic" in check.remedy


def test_internal_topics_are_unknown_without_the_permission(state: KafkaState) -> None:
    check = run(replace(state, internal_topics=None))["connect.internal-topics"]
    assert (check.status, check.seen) == (Status.UNKNOWN, "the settings of the internal topics could not be read")
    assert "DESCRIBE_CONFIGS" in check.remedy


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


def test_reports_added_partitions_that_only_the_pipeline_file_declares(state: KafkaState) -> None:
    topics = [replace(topic, partitions=5) if topic.name == "library.book" else topic for topic in state.topics]
    grown = replace(state, topics=topics, actual=actual_topics(topics))
    assert not_passed(grown) == {"kafka.partitions": "library.book has 5, not 4"}


@pytest.mark.parametrize(
    ("keys", "status", "seen"),
    [
        ({"library.author": 0, "library.book": 3}, Status.FAIL, "library.book: 3 keys"),
        (None, Status.UNKNOWN, "waited 5 s"),
    ],
)
def test_reports_misplaced_keys(state: KafkaState, keys: dict[str, int] | None, status: Status, seen: str) -> None:
    check = run(replace(state, misplaced_keys=keys, sampling_error="waited 5 s"))["kafka.keys-partition"]
    assert (check.status, check.seen) == (status, seen)


def test_states_are_not_sent_again_after_partitions_were_added(state: KafkaState) -> None:
    topics = [replace(topic, partitions=5) if topic.name == "library.book" else topic for topic in state.topics]
    grown = replace(state, actual=actual_topics(topics), misplaced_keys={"library.book": 3})
    assert run(grown)["kafka.keys-partition"].remedy == "see kafka.partitions"


def recreated(state: KafkaState, *names: str) -> KafkaState:
    """Return the state after topics were deleted and created again."""
    return replace(state, actual={**state.actual, **{name: replace(state.actual[name], id="new") for name in names}})


def test_reports_a_recreated_topic(state: KafkaState) -> None:
    check = run(recreated(state, "library.book"))["kafka.topic-identity"]
    assert (check.status, check.seen) == (Status.FAIL, "library.book has id new")
    assert check.expected == "the ids in the lock file: id of library.book"
    assert check.remedy == (
        'run `outbox apply --only kafka --allow "topic library.book"`, then `outbox restart`; '
        "run `outbox backfill --restart book`"
    )


def test_a_changed_policy_is_restored_only_on_its_topic(state: KafkaState) -> None:
    book = next(topic for topic in state.topics if topic.name == "library.book")
    longer = replace(book, name="my.library.book", aggregate_type="shelf")
    actual = {**state.actual, **actual_topics([longer])}
    both = replace(state, topics=[*state.topics, longer], actual=actual)
    check = run(changed(both, "my.library.book", cleanup_policy="delete"))["kafka.cleanup-policy"]
    assert '--allow "topic my.library.book"' in check.remedy
    assert '--allow "topic library.book"' not in check.remedy


def test_a_recreated_topic_without_states_needs_no_backfill(state: KafkaState) -> None:
    check = run(recreated(state, "library.dead-letter"))["kafka.topic-identity"]
    assert (check.status, check.remedy) == (Status.FAIL, "run `outbox apply --only kafka`, then `outbox restart`")


def test_a_topic_that_was_not_recorded_does_not_hide_a_recreated_one(state: KafkaState) -> None:
    recorded = {name: entry for name, entry in state.recorded_topics.items() if name != "library.author"}
    check = run(replace(recreated(state, "library.book"), recorded_topics=recorded))["kafka.topic-identity"]
    assert (check.status, check.seen) == (Status.FAIL, "library.book has id new")


def test_identity_of_topics_that_no_apply_recorded_is_unknown(state: KafkaState) -> None:
    """The lock file was written by a release that does not record topics."""
    check = run(replace(state, recorded_topics={}))["kafka.topic-identity"]
    assert check.status is Status.UNKNOWN
    assert "library.book" in check.seen
    assert "outbox apply" in check.remedy


def test_clusters_without_topic_ids_pass(state: KafkaState) -> None:
    actual = {name: replace(topic, id="") for name, topic in state.actual.items()}
    assert not_passed(replace(state, actual=actual)) == {}


def test_reports_the_types_that_need_a_backfill(state: KafkaState) -> None:
    """The states of a type without a query are written by the service."""
    entries = state.recorded_topics
    author = state.pipeline.aggregates["author"].model_copy(update={"backfill": None})
    aggregates = {**state.pipeline.aggregates, "author": author}
    pending = replace(
        state,
        pipeline=state.pipeline.model_copy(update={"aggregates": aggregates}),
        recorded_topics={
            **entries,
            "library.author": entries["library.author"].model_copy(update={"pending_backfill": "required"}),
            "library.book": entries["library.book"].model_copy(update={"pending_backfill": "started"}),
        },
    )
    check = run(pending)["kafka.pending-backfill"]
    assert (check.status, check.seen) == (Status.FAIL, "needs a backfill: author, book")
    assert check.remedy == (
        "run `outbox backfill book`; have the service write every state of author again, then run "
        "`outbox backfill --acknowledge author`; then run `outbox stuck --resend`"
    )


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
    ("dead_letters", "removed", "status", "seen"),
    [
        (0, 0, Status.PASS, "every dead letter is acknowledged"),
        (3, 0, Status.FAIL, "3 unacknowledged dead letters"),
        (0, 2, Status.FAIL, "up to 2 unacknowledged dead letters removed from the topic"),
        (None, 0, Status.UNKNOWN, "the dead letters could not be counted"),
    ],
)
def test_dead_letters(state: KafkaState, dead_letters: int | None, removed: int, status: Status, seen: str) -> None:
    actual = run(replace(state, dead_letter_count=dead_letters, removed_dead_letters=removed))["kafka.dead-letters"]
    assert (actual.status, actual.seen) == (status, seen)
