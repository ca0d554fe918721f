"""What only `outbox verify` asks Kafka: the cluster itself, leaders and replicas, how far a topic has grown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from outbox_kit.errors import UnreachableError
from outbox_kit.kafka.client import REQUEST_TIMEOUT_S, client_settings
from outbox_kit.kafka.client_errors import Refusals
from outbox_kit.pipeline import Kafka


@dataclass(frozen=True)
class PartitionState:
    """One partition: replicas that there are, that are in sync, and whether anybody leads."""

    replicas: int
    in_sync: int
    led: bool


@dataclass(frozen=True)
class Cluster:
    """The cluster's id and the partitions of the topics that were asked for."""

    id: str
    partitions: dict[str, list[PartitionState]]


def read_cluster(kafka: Kafka, topics: Iterable[str]) -> Cluster:
    """The cluster as its metadata show it. Raises UnreachableError."""
    refusals = Refusals()
    admin = AdminClient(client_settings(kafka, refusals))
    try:
        metadata = admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise _unreachable(kafka, refusals.words(admin, error)) from None
    wanted = {name: metadata.topics[name] for name in topics if name in metadata.topics}
    return Cluster(
        str(metadata.cluster_id),
        {
            name: [PartitionState(len(p.replicas), len(p.isrs), p.leader >= 0) for p in topic.partitions.values()]
            for name, topic in wanted.items()
        },
    )


def end_offset(kafka: Kafka, topic: str) -> int | None:
    """Where the next record of partition 0 will stand; None where there is no such topic. Raises UnreachableError."""
    admin = AdminClient(client_settings(kafka))
    asked = TopicPartition(topic, 0)
    try:
        if topic not in admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics:
            return None
        found = admin.list_offsets({asked: OffsetSpec.latest()}, request_timeout=REQUEST_TIMEOUT_S)  # type: ignore[no-untyped-call]
        return int(found[asked].result(timeout=REQUEST_TIMEOUT_S + 5).offset)
    except (KafkaException, TimeoutError) as error:
        raise _unreachable(kafka, error.args[0].str() if isinstance(error, KafkaException) else "no answer") from None


def _unreachable(kafka: Kafka, words: str) -> UnreachableError:
    return UnreachableError(
        f"cannot reach Kafka at {kafka.bootstrap_servers}: {words}",
        "check kafka.bootstrap_servers and kafka.client in the environment file",
    )
