"""Query that only `outbox verify` uses: leaders and replicas of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from outbox_kit.kafka.client import KafkaClient


@dataclass(frozen=True)
class PartitionState:
    """Number of replicas and of in-sync replicas of a partition, and whether it has a leader."""

    replica_count: int
    in_sync_count: int
    has_leader: bool


@dataclass(frozen=True)
class Cluster:
    """Cluster id, and by topic the partitions of the requested topics that exist."""

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
