"""Kafka's admin API, one method per call, no policy."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.admin import ConfigSource as Origin

from outbox_kit.errors import ConfigurationError, RejectedError, UnreachableError
from outbox_kit.kafka.client_errors import Refusals
from outbox_kit.pipeline import Kafka

REQUEST_TIMEOUT_S = 20

T = TypeVar("T")


@dataclass(frozen=True)
class TopicState:
    """One topic as the cluster has it; `config` holds every setting with its effective value."""

    partitions: int
    replication_factor: int
    config: dict[str, str]


def client_settings(kafka: Kafka, refusals: Refusals | None = None) -> dict[str, Any]:
    """librdkafka settings of the environment. Its own log lines are off: errors arrive as exceptions.

    `refusals` hears why there is no answer.
    """
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "log_level": 0,
        "socket.connection.setup.timeout.ms": 10_000,
        "topic.metadata.refresh.interval.ms": 5_000,
        **kafka.client,
        **({"error_cb": refusals} if refusals is not None else {}),
    }


class KafkaClient:
    """Topics and their settings. Every call is bounded; raises UnreachableError and RejectedError."""

    def __init__(self, kafka: Kafka) -> None:
        self._address = kafka.bootstrap_servers
        self._refusals = Refusals()
        try:
            self._admin = AdminClient(client_settings(kafka, self._refusals))
        except KafkaException as error:
            message = f"kafka.client in the environment file: {error.args[0].str()}"
            raise ConfigurationError(message, "settings and values are those of librdkafka") from None

    def cluster_id(self) -> str:
        """The id that the cluster gave itself when it was formatted."""
        return str(self._metadata().cluster_id)

    def topics(self) -> dict[str, tuple[int, int]]:
        """Partition count and replication factor of every topic, by name."""
        return {
            name: (len(topic.partitions), len(topic.partitions[0].replicas) if topic.partitions else 0)
            for name, topic in self._metadata().topics.items()
        }

    def _metadata(self) -> ClusterMetadata:
        try:
            return self._admin.list_topics(timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise UnreachableError(
                f"cannot reach Kafka at {self._address}: {self._refusals.words(self._admin, error)}",
                "check kafka.bootstrap_servers and kafka.client in the environment file",
            ) from None

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        """State of those of `names` that exist."""
        existing = self.topics()
        wanted = [name for name in names if name in existing]
        if not wanted:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in wanted]
        futures = self._admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
        states = {}
        for resource, future in futures.items():
            entries = self._result(future, f"settings of topic {resource.name}")
            partitions, replicas = existing[resource.name]
            config = {key: entry.value for key, entry in entries.items() if entry.value is not None}
            states[resource.name] = TopicState(partitions, replicas, config)
        return states

    def create(self, name: str, *, partitions: int, replication_factor: int, config: dict[str, str]) -> None:
        """Create a topic."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=config)
        futures = self._admin.create_topics([topic], request_timeout=REQUEST_TIMEOUT_S)
        self._result(futures[name], f"create topic {name}")

    def set_config(self, name: str, config: dict[str, str]) -> None:
        """Set these settings of a topic and leave its others alone."""
        entries = [
            ConfigEntry(
                key,
                value,
                source=Origin.DYNAMIC_TOPIC_CONFIG,
                incremental_operation=AlterConfigOpType.SET,
            )
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        futures = self._admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
        self._result(futures[resource], f"change topic {name}")

    def grow(self, name: str, partitions: int) -> None:
        """Raise the partition count of a topic to `partitions`; Kafka cannot lower it."""
        futures = self._admin.create_partitions(
            [NewPartitions(name, new_total_count=partitions)], request_timeout=REQUEST_TIMEOUT_S
        )
        self._result(futures[name], f"grow topic {name}")

    def has_records(self, name: str, partitions: int) -> bool:
        """Whether a record was ever written that is not deleted by now; markers of transactions count too."""
        return any(first != end for first, end in self.bounds(name, partitions).values())

    def bounds(self, name: str, partitions: int) -> dict[int, tuple[int, int]]:
        """First and end offset of each partition of a topic."""
        first = self._offsets(name, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        end = self._offsets(name, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return dict(enumerate(zip(first, end, strict=True)))

    def _offsets(self, name: str, partitions: int, spec: OffsetSpec) -> list[int]:
        asked = {TopicPartition(name, number): spec for number in range(partitions)}
        futures = self._admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
        found = {
            partition.partition: self._result(future, f"offsets of topic {name}").offset
            for partition, future in futures.items()
        }
        return [found[number] for number in sorted(found)]

    def delete(self, name: str) -> None:
        """Delete a topic and its records."""
        futures = self._admin.delete_topics([name], request_timeout=REQUEST_TIMEOUT_S)
        self._result(futures[name], f"delete topic {name}")

    def _result(self, future: Future[T], what: str) -> T:
        try:
            return future.result(timeout=REQUEST_TIMEOUT_S + 5)
        except KafkaException as error:
            raise RejectedError(f"Kafka at {self._address}: {what}: {error.args[0].str()}") from None
        except TimeoutError:
            message = f"Kafka at {self._address}: {what}: no answer within {REQUEST_TIMEOUT_S} s"
            raise UnreachableError(message, "look at the brokers; then run again: every step looks first") from None
