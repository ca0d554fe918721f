"""Query the replicas of partitions and the internal topics of Kafka Connect for `outbox verify`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from outbox_kit.kafka.client import ActualTopic, KafkaClient
from outbox_kit.pipeline import Connect, Kafka

# Default names of the internal topics, from Kafka's example config, by key under `connect` in the environment file.
DEFAULT_NAMES = {
    "config_topic": "connect-configs",
    "offset_topic": "connect-offsets",
    "status_topic": "connect-status",
}
CONFIG_TOPIC = "config_topic"
POLICY = "cleanup.policy"


@dataclass(frozen=True)
class PartitionState:
    """Numbers of replicas and in-sync replicas of a partition, and whether the partition has a leader."""

    replica_count: int
    in_sync_count: int
    has_leader: bool


@dataclass(frozen=True)
class Cluster:
    """Cluster id, and the partitions of those requested topics that exist, by topic."""

    id: str
    partitions: dict[str, list[PartitionState]]


def read_cluster(client: KafkaClient, topics: Iterable[str]) -> Cluster:
    """Read the cluster id and the partitions of `topics`. Raises UnreachableError."""
    metadata = client.metadata()
    return Cluster(
        str(metadata.cluster_id),
        {
            name: [
                PartitionState(len(partition.replicas), len(partition.isrs), partition.leader >= 0)
                for partition in metadata.topics[name].partitions.values()
            ]
            for name in topics
            if name in metadata.topics
        },
    )


@dataclass(frozen=True)
class InternalTopic:
    """One internal topic. `key` is its key in the environment file. `actual` is None if the topic was not found.

    `is_named` is true if the environment file contains the name.
    """

    key: str
    name: str
    is_named: bool
    actual: ActualTopic | None


def read_internal_topics(client: KafkaClient, service: Connect) -> list[InternalTopic]:
    """Read the internal topics. If the environment file does not name a topic, its default name is used."""
    named: dict[str, str | None] = {key: getattr(service, key) for key in DEFAULT_NAMES}
    names = {key: name or DEFAULT_NAMES[key] for key, name in named.items()}
    actual = client.describe(names.values())
    return [InternalTopic(key, name, bool(named[key]), actual.get(name)) for key, name in names.items()]


def internal_topic_problems(topics: list[InternalTopic], kafka: Kafka) -> Iterator[tuple[str, str]]:
    """Yield the problems of existing internal topics that can cause Connect to lose data, each with its remedy."""
    for topic in topics:
        if topic.actual is not None:
            yield from _problems(topic.name, topic.key, topic.actual, kafka)


def set_config(kafka: Kafka, topic: str, settings: str) -> str:
    """Return the command that changes settings of a topic, and what it requires."""
    command = f"kafka-configs --bootstrap-server {kafka.bootstrap_servers}"
    command += f"{' --command-config client.properties' if kafka.client else ''} --alter --topic {topic}"
    requirement = " (client.properties contains the settings of kafka.client under their names in Java clients)"
    return f"`{command} --add-config {settings}`{requirement if kafka.client else ''}"


def _problems(name: str, key: str, actual: ActualTopic, kafka: Kafka) -> Iterator[tuple[str, str]]:
    policy = actual.config.get(POLICY, "")
    if policy != "compact":
        remedy = f"run {set_config(kafka, name, f'{POLICY}=compact')}, then `outbox offsets show`"
        yield f"{name}: {POLICY} is {policy}, so Kafka deletes old entries", remedy
    if key == CONFIG_TOPIC and actual.partitions != 1:
        remedy = (
            "create a topic with one partition, set config.storage.topic of every worker to it, then `outbox apply`"
        )
        yield f"{name} has {actual.partitions} partitions, so workers read configs out of order", remedy
    if actual.replication_factor < kafka.replication_factor:
        text = (
            f"{name} has {actual.replication_factor} replicas, kafka.replication_factor is {kafka.replication_factor}"
        )
        yield text, f"add replicas to {name} with kafka-reassign-partitions"
