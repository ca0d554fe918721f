"""Checks of `outbox verify` on Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_kit.kafka.client import ActualTopic
from outbox_kit.kafka.state import Topic, different_settings
from outbox_kit.kafka.verify_queries import Cluster
from outbox_kit.pipeline import Kafka
from outbox_kit.rules import Finding, Rules

SEPARATELY_CHECKED_SETTINGS = frozenset(
    {"cleanup.policy", "min.insync.replicas", "max.message.bytes", "message.timestamp.after.max.ms"}
)


@dataclass(frozen=True)
class KafkaState:
    """Input of the checks. `dead_letter_count` counts the unacknowledged dead letters; None if it is unknown."""

    kafka: Kafka
    recorded_cluster_id: str | None
    topics: list[Topic]
    actual: dict[str, ActualTopic]
    cluster: Cluster
    dead_letter_count: int | None

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
    remedy="run `outbox apply`, then `outbox restart` if the connector does not continue",
)
def _topics_exist(state: KafkaState) -> Finding:
    missing_names = sorted(topic.name for topic in state.topics if topic.name not in state.actual)
    expected = f"all {len(state.topics)} topics of the pipeline exist"
    return Finding(not missing_names, f"missing: {', '.join(missing_names)}" if missing_names else expected, expected)


@RULES.rule(
    "kafka.cleanup-policy",
    condition="cleanup.policy is compact for state topics, and delete for the other topics of the pipeline",
    remedy="run `outbox apply`, then run `outbox republish` for the states that retention has removed",
)
def _policy(state: KafkaState) -> Finding:
    return _setting_finding(state, "cleanup.policy")


@RULES.rule(
    "kafka.partitions",
    condition="topics have the partition count of the pipeline file; the count determines the partition of a key",
    remedy="set `partitions` in the pipeline file to the actual count; see docs/contract.md",
)
def _partitions(state: KafkaState) -> Finding:
    problems = [
        f"{topic.name} has {state.actual[topic.name].partitions}, not {topic.partitions}"
        for topic in state.existing_topics
        if state.actual[topic.name].partitions != topic.partitions
    ]
    return _differences_finding(problems)


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
    condition="no topic rejects records with a timestamp after the broker's time, which would fail the task",
    remedy="run `outbox apply`",
)
def _timestamps(state: KafkaState) -> Finding:
    return _setting_finding(state, "message.timestamp.after.max.ms")


@RULES.rule("kafka.topic-settings", condition="all other topic settings are as declared", remedy="run `outbox apply`")
def _settings(state: KafkaState) -> Finding:
    return _differences_finding(
        [
            f"{topic.name}: {key} is {actual}, not {desired}"
            for topic in state.existing_topics
            for key, (actual, desired) in different_settings(topic, state.actual[topic.name]).items()
            if key not in SEPARATELY_CHECKED_SETTINGS
        ]
    )


@RULES.rule(
    "kafka.dead-letters",
    condition="the dead letter topic has no records after the acknowledged offsets",
    remedy="run `outbox dead-letter list`, fix the cause, run `outbox republish` and `outbox dead-letter acknowledge`",
)
def _dead_letters(state: KafkaState) -> Finding:
    expected = "no records after the acknowledged offsets"
    if state.dead_letter_count is None:
        return Finding(None, "the dead letters could not be counted", expected)
    count = state.dead_letter_count
    return Finding(not count, f"{count} unacknowledged dead letters" if count else expected, expected)


def _setting_finding(state: KafkaState, key: str) -> Finding:
    problems = []
    for topic in state.existing_topics:
        actual, desired = different_settings(topic, state.actual[topic.name]).get(key, ("", ""))
        if actual != desired:
            problems.append(f"{topic.name}: {key} is {actual}, not {desired}")
    return _differences_finding(problems)


def _differences_finding(differences: list[str]) -> Finding:
    return Finding(not differences, "; ".join(differences) or "as declared", "as declared")
