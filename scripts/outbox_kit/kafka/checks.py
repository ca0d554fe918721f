"""Define the checks of Kafka for `outbox verify`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from outbox_events.text import plural
from outbox_kit.kafka.client import ActualTopic
from outbox_kit.kafka.preconditions import MOVE_HINT
from outbox_kit.kafka.state import Topic, different_settings
from outbox_kit.kafka.topic_identity import RecordedTopics, is_recreated, types_with_pending_backfill
from outbox_kit.kafka.unsequenced_records import UnsequencedRecords
from outbox_kit.kafka.verify_queries import Cluster, InternalTopic, internal_topic_problems
from outbox_kit.pipeline import Kafka, Pipeline
from outbox_kit.results.checks import Finding, Rules
from outbox_kit.results.repair_commands import RESEND_HINT, backfill_steps, resend_steps

TIMESTAMP_LIMITS = ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms")
UNCLEAN_ELECTION = "unclean.leader.election.enable"
SEPARATELY_CHECKED_SETTINGS = frozenset(
    {"cleanup.policy", "min.insync.replicas", "max.message.bytes", UNCLEAN_ELECTION, *TIMESTAMP_LIMITS}
)

RETENTION_OF_TOMBSTONES = "delete.retention.ms"
MISSED_TOMBSTONES = (
    "if a Spark job did not run while delete.retention.ms was lower, run `outbox-reconcile`, because Kafka might have "
    "removed tombstones that the job has not read"
)


@dataclass(frozen=True)
class KafkaState:
    """Input of the checks. `dead_letter_count` is the number of unacknowledged dead letters, or None if unknown.
    `removed_dead_letters` is the number of offsets that were removed before they were acknowledged.

    `recorded_topics` contains the topics in the lock file. `misplaced_keys` maps topics to numbers of misplaced keys.
    It is None if the keys could not be read, for the reason in `sampling_error`. `internal_topics` contains Connect's
    internal topics. It is None if the login is not allowed to read their settings. `open_transactions` maps topics and
    partitions to last stable offsets. `empty_types` contains the types whose topics have no record.
    """

    pipeline: Pipeline
    kafka: Kafka
    recorded_cluster_id: str | None
    recorded_topics: RecordedTopics
    topics: list[Topic]
    actual: dict[str, ActualTopic]
    cluster: Cluster
    dead_letter_count: int | None
    misplaced_keys: dict[str, int] | None
    internal_topics: list[InternalTopic] | None
    sampling_error: str = ""
    open_transactions: dict[tuple[str, int], int] = field(default_factory=dict)
    removed_dead_letters: int = 0
    empty_types: list[str] = field(default_factory=list)
    unsequenced: dict[str, UnsequencedRecords] = field(default_factory=dict)

    @property
    def existing_topics(self) -> list[Topic]:
        return [topic for topic in self.topics if topic.name in self.actual]


RULES = Rules[KafkaState]()


@RULES.rule(
    "kafka.reachable",
    condition="the Kafka cluster responds",
    remedy="check kafka.bootstrap_servers and kafka.client in the environment file",
)
def _reachable(state: KafkaState) -> Finding:
    return Finding(True, f"cluster {state.cluster.id}", "a response")


@RULES.rule(
    "kafka.cluster",
    condition="the cluster id equals kafka.cluster_id and the cluster id in the lock file",
    remedy="set kafka.bootstrap_servers to brokers of the cluster to which the pipeline was deployed",
)
def _cluster(state: KafkaState) -> Finding:
    expected = {name for name in (state.kafka.cluster_id, state.recorded_cluster_id) if name}
    if not expected:
        return Finding(None, state.cluster.id, "an expected cluster id", "set kafka.cluster_id in the environment file")
    return Finding(expected == {state.cluster.id}, state.cluster.id, " and ".join(sorted(expected)))


@RULES.rule(
    "kafka.topics",
    condition="every topic of the pipeline exists; otherwise the task of the connector blocks",
    remedy="run `outbox apply` with --allow for each deleted state topic, then `outbox restart` if the connector does "
    "not continue",
)
def _topics_exist(state: KafkaState) -> Finding:
    missing = [topic for topic in state.topics if topic.name not in state.actual]
    expected = f"all {len(state.topics)} topics of the pipeline exist"
    actual = f"missing: {', '.join(sorted(topic.name for topic in missing))}" if missing else expected
    return Finding(not missing, actual, expected, _remedy_of_deleted(state, missing))


@RULES.rule(
    "kafka.topic-identity",
    condition="no topic was deleted and created again after the last `outbox apply`",
    remedy="run `outbox apply` with --allow for each state topic, `outbox restart`, then `outbox backfill --restart`",
)
def _topic_identity(state: KafkaState) -> Finding:
    expected, recorded = "the ids in the lock file", state.recorded_topics
    recreated = [
        topic for topic in state.existing_topics if is_recreated(state.actual[topic.name], recorded.get(topic.name))
    ]
    if recreated:
        problems = [f"{topic.name} has id {state.actual[topic.name].id}" for topic in recreated]
        ids = ", ".join(recorded[topic.name].id for topic in recreated)
        return Finding(False, "; ".join(problems), f"{expected}: {ids}", _remedy_of_deleted(state, recreated))
    unrecorded_names = [topic.name for topic in state.existing_topics if topic.name not in recorded]
    if unrecorded_names:
        actual = f"the lock file does not contain the id of {', '.join(unrecorded_names)}"
        return Finding(None, actual, expected, "run `outbox apply`, which records the ids")
    return Finding(True, expected, expected)


def _remedy_of_deleted(state: KafkaState, topics: list[Topic]) -> str:
    """Return the commands that apply the topics and write the states of the deleted topics again.

    A task that wrote to a deleted topic blocks or fails. While it blocks, Connect does not return its offsets, which an
    `apply` without --only reads.
    """
    types = _types_of_topics(topics)
    apply_step = f"run `outbox apply --only kafka{_allow_options(types)}`, then `outbox restart`"
    return "; ".join(filter(None, [apply_step, backfill_steps(state.pipeline, sorted(types.values()))]))


@RULES.rule(
    "kafka.pending-backfill",
    condition="no state topic has a pending backfill; a backfill is required if records or unsent rows were lost",
    remedy="run `outbox backfill` for the aggregate types, then `outbox stuck --resend`",
)
def _pending_backfill(state: KafkaState) -> Finding:
    expected = "no topic needs a backfill"
    types = types_with_pending_backfill(state.recorded_topics)
    actual = f"needs a backfill: {', '.join(types)}" if types else expected
    return Finding(not types, actual, expected, resend_steps(state.pipeline, types, pending=True))


@RULES.rule(
    "kafka.cleanup-policy",
    condition="cleanup.policy is compact for state topics, and delete for the other topics of the pipeline",
    remedy=f"run `outbox apply`; for the states that retention has removed, {RESEND_HINT}",
)
def _policy(state: KafkaState) -> Finding:
    topics = [(topic, different_settings(topic, state.actual[topic.name])) for topic in state.existing_topics]
    types = _types_of_topics(topic for topic, settings in topics if "cleanup.policy" in settings)
    steps = [f"run `outbox apply{_allow_options(types)}`", resend_steps(state.pipeline, sorted(types.values()))]
    return replace(_setting_finding(state, "cleanup.policy"), remedy="; then ".join(filter(None, steps)))


def _types_of_topics(topics: Iterable[Topic]) -> dict[str, str]:
    """Return the aggregate type of each state topic, by topic name."""
    return {topic.name: topic.aggregate_type for topic in topics if topic.aggregate_type is not None}


def _allow_options(topics: Iterable[str]) -> str:
    """Return the command-line options that allow dangerous changes to the topics."""
    return "".join(f' --allow "topic {name}"' for name in topics)


@RULES.rule(
    "kafka.partitions",
    condition="topics have the partition count from the pipeline file and the lock file, because the count determines "
    "the partition of a key",
    remedy=f"{MOVE_HINT}; for a topic without states, set `partitions` in the pipeline file",
)
def _partitions(state: KafkaState) -> Finding:
    problems = []
    for topic in state.existing_topics:
        actual_count, recorded = state.actual[topic.name].partitions, state.recorded_topics.get(topic.name)
        expected_counts = {topic.partitions, recorded.partitions if recorded else topic.partitions}
        other_counts = sorted(expected_counts - {actual_count})
        problems += [f"{topic.name} has {actual_count}, not {count}" for count in other_counts]
    return _differences_finding(problems)


@RULES.rule(
    "kafka.keys-partition",
    condition="all states of a key are in the partition of the key's next record (checked for the oldest records); a "
    "tombstone does not delete a state in another partition",
    remedy=f"if partitions were added to the topic, {MOVE_HINT}; if another producer wrote these states, stop it; if "
    f"the connector config contains another partitioner, run `outbox apply`; then run {RESEND_HINT}",
)
def _keys_partition(state: KafkaState) -> Finding:
    expected = "every sampled key has its states in one partition"
    if state.misplaced_keys is None:
        return Finding(
            None, state.sampling_error, expected, "run the command again; check the brokers and kafka.client"
        )
    problems = [f"{topic}: {count} keys" for topic, count in sorted(state.misplaced_keys.items()) if count]
    # With added partitions, sending the states again would write more of them to other partitions than before.
    has_added = any(topic.partitions != state.actual[topic.name].partitions for topic in state.existing_topics)
    return Finding(not problems, "; ".join(problems) or expected, expected, "see kafka.partitions" if has_added else "")


@RULES.rule(
    "kafka.replication",
    condition="every partition has at least kafka.replication_factor replicas",
    remedy="add replicas with kafka-reassign-partitions, or correct kafka.replication_factor",
)
def _replication(state: KafkaState) -> Finding:
    factor = state.kafka.replication_factor
    problems = [
        f"{name} has {min(partition.replica_count for partition in partitions)} replicas"
        for name, partitions in sorted(state.cluster.partitions.items())
        if min((partition.replica_count for partition in partitions), default=0) < factor
    ]
    return Finding(not problems, "; ".join(problems) or f"{factor} or more replicas", f"{factor} or more replicas")


@RULES.rule(
    "kafka.min-insync",
    condition="topics have the min.insync.replicas of the environment file, and at least as many replicas",
    remedy="set kafka.min_insync_replicas to at most kafka.replication_factor, then run `outbox apply`",
)
def _min_insync(state: KafkaState) -> Finding:
    finding = _setting_finding(state, "min.insync.replicas")
    problems = [
        f"{topic.name} needs {minimum} in-sync replicas, but has {replica_count} replicas"
        for topic in state.existing_topics
        if (minimum := int(state.actual[topic.name].config.get("min.insync.replicas", "1")))
        > (replica_count := state.actual[topic.name].replication_factor)
    ]
    return Finding(finding.passed and not problems, "; ".join(problems) or finding.actual, finding.expected)


@RULES.rule(
    "kafka.in-sync",
    condition="every partition has a leader and enough in-sync replicas for a write",
    remedy="start the brokers that are down; check the logs of brokers whose replicas are not in sync",
)
def _in_sync(state: KafkaState) -> Finding:
    problems = [
        f"{name}-{number}: {f'{p.in_sync_count} of {p.replica_count} in sync' if p.has_leader else 'no leader'}"
        for name, partitions in sorted(state.cluster.partitions.items())
        for number, p in enumerate(partitions)
        if not p.has_leader or p.in_sync_count < min(state.kafka.min_insync_replicas, p.replica_count)
    ]
    expected = "every partition has a leader and enough in-sync replicas"
    return Finding(not problems, "; ".join(problems) or expected, expected)


@RULES.rule(
    "kafka.timestamp-limit",
    condition="topics accept records with a timestamp ahead of or behind the broker's clock; otherwise the task would "
    "fail, for example while it sends the backlog of an outage",
    remedy="run `outbox apply`; if the task has failed, also run `outbox restart`",
)
def _timestamps(state: KafkaState) -> Finding:
    return _setting_finding(state, *TIMESTAMP_LIMITS)


@RULES.rule(
    "kafka.unclean-election",
    condition="no topic allows an unclean leader election, after which acknowledged records are missing",
    remedy="run `outbox apply`, then `outbox stuck --resend`, which sends the states again that an election discarded",
)
def _unclean_election(state: KafkaState) -> Finding:
    return _setting_finding(state, UNCLEAN_ELECTION)


@RULES.rule("kafka.topic-settings", condition="all other topic settings are as declared", remedy="run `outbox apply`")
def _settings(state: KafkaState) -> Finding:
    keys = {key for topic in state.topics for key in topic.config} - SEPARATELY_CHECKED_SETTINGS
    missed_tombstones = any(
        int(state.actual[topic.name].config.get(RETENTION_OF_TOMBSTONES) or 0)
        < int(topic.config.get(RETENTION_OF_TOMBSTONES, 0))
        for topic in state.existing_topics
    )
    remedy = f"run `outbox apply`; {MISSED_TOMBSTONES}" if missed_tombstones else ""
    return replace(_setting_finding(state, *keys), remedy=remedy)


@RULES.rule(
    "kafka.dead-letters",
    condition="every dead letter is acknowledged, and none was removed from the topic before it was acknowledged",
    remedy="run `outbox dead-letter list`, fix the cause, then run `outbox stuck --resend` and "
    "`outbox dead-letter acknowledge --all`",
)
def _dead_letters(state: KafkaState) -> Finding:
    expected = "every dead letter is acknowledged"
    if state.dead_letter_count is None:
        return Finding(None, "the dead letters could not be counted", expected)
    count, removed = state.dead_letter_count, state.removed_dead_letters
    problems = [f"{count} unacknowledged dead letters"] if count else []
    # Transaction markers also have offsets.
    problems += [f"up to {plural(removed, 'unacknowledged dead letter')} removed from the topic"] if removed else []
    return Finding(not problems, "; ".join(problems) or expected, expected)


@RULES.rule(
    "connect.internal-topics",
    condition="the internal topics of Kafka Connect are compacted and replicated; otherwise Connect loses offsets",
    remedy="set connect.config_topic, connect.offset_topic and connect.status_topic in the environment file to "
    "the workers' config.storage.topic, offset.storage.topic and status.storage.topic",
)
def _internal_topics(state: KafkaState) -> Finding:
    replica_count = state.kafka.replication_factor
    expected = f"cleanup.policy compact, {replica_count} or more replicas, one partition of the config topic"
    if state.internal_topics is None:
        remedy = "grant DESCRIBE and DESCRIBE_CONFIGS on the internal topics of Connect to the login in kafka.client"
        return Finding(None, "the settings of the internal topics could not be read", expected, remedy)
    problems = dict(internal_topic_problems(state.internal_topics, state.kafka))
    if problems:
        return Finding(False, "; ".join(problems), expected, "; ".join(problems.values()))
    missing = [topic for topic in state.internal_topics if topic.actual is None]
    if missing:
        text = f"not found, or not visible to this login: {', '.join(topic.name for topic in missing)}"
        return Finding(False if any(topic.is_named for topic in missing) else None, text, expected)
    return Finding(True, ", ".join(topic.name for topic in state.internal_topics), expected)


def _setting_finding(state: KafkaState, *keys: str) -> Finding:
    problems = [
        f"{topic.name}: {key} is {actual}, not {desired}"
        for topic in state.existing_topics
        for key, (actual, desired) in different_settings(topic, state.actual[topic.name]).items()
        if key in keys
    ]
    return _differences_finding(problems)


def _differences_finding(differences: list[str]) -> Finding:
    return Finding(not differences, "; ".join(differences) or "as declared", "as declared")
