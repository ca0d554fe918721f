"""What `outbox verify` checks in Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_kit.kafka.client import TopicState
from outbox_kit.kafka.state import Topic, different_settings
from outbox_kit.kafka.verify_queries import Cluster
from outbox_kit.pipeline import Kafka
from outbox_kit.rules import Finding, Rule, rule

# Settings with a check of their own.
OWN_CHECK = frozenset({"cleanup.policy", "min.insync.replicas", "max.message.bytes", "message.timestamp.after.max.ms"})


@dataclass(frozen=True)
class Look:
    """Everything that the checks of Kafka look at; `dead_letters` is None where this login may not count them."""

    kafka: Kafka
    locked_cluster: str | None
    topics: list[Topic]
    actual: dict[str, TopicState]
    cluster: Cluster
    dead_letters: dict[int, int] | None

    @property
    def present(self) -> list[Topic]:
        return [topic for topic in self.topics if topic.name in self.actual]


RULES: list[Rule[Look]] = []


@rule(
    RULES,
    "kafka.reachable",
    guards="the Kafka cluster answers",
    remedy="check kafka.bootstrap_servers and kafka.client in the environment file",
)
def _reachable(look: Look) -> Finding:
    return Finding(True, f"cluster {look.cluster.id}", "an answer")


@rule(
    RULES,
    "kafka.cluster",
    guards="this is the cluster that the environment file names, or that was deployed to",
    remedy="check kafka.bootstrap_servers: another cluster has other topics, and the tables read the old one",
)
def _cluster(look: Look) -> Finding:
    expected = {name for name in (look.kafka.cluster_id, look.locked_cluster) if name}
    if not expected:
        return Finding(None, look.cluster.id, "a cluster id", "name it in kafka.cluster_id of the environment file")
    return Finding(expected == {look.cluster.id}, look.cluster.id, " and ".join(sorted(expected)))


@rule(
    RULES,
    "kafka.topics",
    guards="every topic that the connector writes exists: without one its producer blocks while the state is RUNNING",
    remedy="run `outbox apply`, then restart the connector if it does not go on by itself",
)
def _exist(look: Look) -> Finding:
    missing = sorted(topic.name for topic in look.topics if topic.name not in look.actual)
    expected = f"all {len(look.topics)} topics of the pipeline"
    return Finding(not missing, f"missing: {', '.join(missing)}" if missing else f"all {len(look.topics)}", expected)


@rule(
    RULES,
    "kafka.cleanup-policy",
    guards="aggregates' topics are compacted and nothing else, the kit's own ones are not: else states are forgotten",
    remedy="run `outbox apply`; what retention has deleted must be republished",
)
def _policy(look: Look) -> Finding:
    return _setting(look, "cleanup.policy")


@rule(
    RULES,
    "kafka.partitions",
    guards="topics have the partitions that the pipeline file declares: with another count keys move",
    remedy="set `partitions` in the pipeline file to the live count; see docs/contract.md",
)
def _partitions(look: Look) -> Finding:
    wrong = [
        f"{topic.name} has {look.actual[topic.name].partitions}, not {topic.partitions}"
        for topic in look.present
        if look.actual[topic.name].partitions != topic.partitions
    ]
    return _wrong(wrong)


@rule(
    RULES,
    "kafka.replication",
    guards="every topic has the replicas that the environment asks for: one broker less loses nothing",
    remedy="add replicas with kafka-reassign-partitions; or correct kafka.replication_factor",
)
def _replication(look: Look) -> Finding:
    wanted = look.kafka.replication_factor
    wrong = [
        f"{name} has {min(p.replicas for p in partitions)}"
        for name, partitions in sorted(look.cluster.partitions.items())
        if min((p.replicas for p in partitions), default=0) < wanted
    ]
    return Finding(not wrong, "; ".join(wrong) or f"{wanted} or more", f"{wanted} or more")


@rule(
    RULES,
    "kafka.min-insync",
    guards="an acknowledged record is on as many brokers as the environment asks for, and the topic has that many",
    remedy="run `outbox apply`; min_insync_replicas must not be above replication_factor",
)
def _min_insync(look: Look) -> Finding:
    found = _setting(look, "min.insync.replicas")
    beyond = [
        f"{topic.name} needs {look.actual[topic.name].config['min.insync.replicas']} of {replicas} replicas"
        for topic in look.present
        if int(look.actual[topic.name].config.get("min.insync.replicas", "1"))
        > (replicas := look.actual[topic.name].replication_factor)
    ]
    return Finding(found.good and not beyond, "; ".join(beyond) or found.seen, found.expected)


@rule(
    RULES,
    "kafka.in-sync",
    guards="every partition has a leader and enough replicas in sync to take a record now",
    remedy="look at the brokers: one is down or behind",
)
def _in_sync(look: Look) -> Finding:
    wrong = [
        f"{name}-{number}: {'no leader' if not p.led else f'{p.in_sync} of {p.replicas} in sync'}"
        for name, partitions in sorted(look.cluster.partitions.items())
        for number, p in enumerate(partitions)
        if not p.led or p.in_sync < min(look.kafka.min_insync_replicas, p.replicas)
    ]
    return Finding(not wrong, "; ".join(wrong) or "all led and in sync", "all led and in sync")


@rule(
    RULES,
    "kafka.timestamp-limit",
    guards="no topic refuses a record for its time: that would end the task at commit, row after row",
    remedy="run `outbox apply`",
)
def _timestamps(look: Look) -> Finding:
    return _setting(look, "message.timestamp.after.max.ms")


@rule(
    RULES,
    "kafka.topic-settings",
    guards="every other setting of a topic is as declared",
    remedy="run `outbox apply`",
)
def _settings(look: Look) -> Finding:
    return _wrong(
        [
            f"{topic.name}: {key} is {old}, not {new}"
            for topic in look.present
            for key, (old, new) in different_settings(topic, look.actual[topic.name]).items()
            if key not in OWN_CHECK
        ]
    )


@rule(
    RULES,
    "kafka.dead-letters",
    guards="no row became a dead letter since somebody last acknowledged them",
    remedy="`outbox dead-letter list`, mend the cause, write the newest states again, `outbox dead-letter acknowledge`",
)
def _dead_letters(look: Look) -> Finding:
    expected = "none since the acknowledged offset"
    if look.dead_letters is None:
        return Finding(None, "this login may not count them", expected)
    count = sum(look.dead_letters.values())
    return Finding(not count, f"{count} not acknowledged" if count else "none", expected)


def _setting(look: Look, key: str) -> Finding:
    wrong = []
    for topic in look.present:
        old, new = different_settings(topic, look.actual[topic.name]).get(key, ("", ""))
        if old != new:
            wrong.append(f"{topic.name}: {key} is {old}, not {new}")
    return _wrong(wrong)


def _wrong(wrong: list[str]) -> Finding:
    return Finding(not wrong, "; ".join(wrong) or "as declared", "as declared")
