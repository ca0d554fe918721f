"""Manage topics, offsets and consumer groups with Kafka's admin client, and send records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from outbox_events.errors import ConfigurationError, RejectedError, UnreachableError
from outbox_events.kafka import topic_requests
from outbox_events.kafka.record import PRODUCER_SETTINGS, Record
from outbox_events.kafka.topic_requests import Bounds, ClientErrors
from outbox_events.producing.deliveries import Deliveries
from outbox_kit.pipeline import Kafka

REQUEST_TIMEOUT_S = 20
SEND_TIMEOUT_S = 60
MAX_MESSAGE_BYTES = 100_000_000
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
READ_TOPIC_HINT = (
    "check the name of the topic (`outbox apply` creates the pipeline's topics), the brokers and kafka.client"
)

T = TypeVar("T")


@dataclass(frozen=True)
class ActualTopic:
    """Actual state of a topic. `config` contains the effective values of all settings that are not null.

    `id` changes if the topic is deleted and created again. It is empty if the cluster does not assign ids.
    """

    partitions: int
    replication_factor: int
    config: dict[str, str]
    id: str = ""


def client_settings(kafka: Kafka, errors: ClientErrors | None = None) -> dict[str, Any]:
    """Return the settings of a librdkafka client. The client's background threads report their errors to `errors`.

    librdkafka logs only emergencies, because other errors are raised as exceptions.
    """
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "log_level": 0,
        "socket.connection.setup.timeout.ms": 10_000,
        "topic.metadata.refresh.interval.ms": 5_000,
        **kafka.client,
        **({"error_cb": errors} if errors is not None else {}),
    }


def send_records(kafka: Kafka, records: Iterable[Record]) -> None:
    """Send the records and wait until all records are confirmed. Raises UnreachableError."""
    # The topic limits the size of a record. The producer must not have a lower limit.
    settings = {**client_settings(kafka), **PRODUCER_SETTINGS, "message.max.bytes": MAX_MESSAGE_BYTES}
    deliveries = Deliveries(Producer(settings), seconds=SEND_TIMEOUT_S)
    for record in records:
        deliveries.send(record)
    deliveries.wait()


class KafkaClient:
    """Client for topics, their settings and offsets. Methods raise UnreachableError and RejectedError."""

    def __init__(self, kafka: Kafka, *, seconds: float | None = None) -> None:
        """`seconds` limits each request."""
        self.kafka = kafka
        self._timeout_s = REQUEST_TIMEOUT_S if seconds is None else seconds
        self._errors = ClientErrors()
        try:
            self._admin = AdminClient(client_settings(kafka, self._errors))
        except KafkaException as error:
            message = f"kafka.client in the environment file: {error.args[0].str()}"
            raise ConfigurationError(message, "correct the librdkafka properties in kafka.client") from None

    def metadata(self, topic: str | None = None) -> ClusterMetadata:
        """Return the cluster's metadata, with all topics or only `topic`."""
        try:
            return self._admin.list_topics(topic=topic, timeout=self._timeout_s)
        except KafkaException as error:
            self._admin.poll(0)  # calls error_cb, which stores the cause
            cause = f"; {self._errors.cause}" if self._errors.cause else ""
            raise UnreachableError(
                f"cannot reach Kafka at {self.kafka.bootstrap_servers}: {error.args[0].str()} "
                f"(time limit {self._timeout_s:g} s){cause}",
                "check that the brokers run; check kafka.bootstrap_servers and kafka.client in the environment file",
            ) from None

    def cluster_id(self) -> str:
        return str(self.metadata().cluster_id)

    def topics(self) -> dict[str, tuple[int, int]]:
        """Return a mapping from each topic name to the topic's partition count and replication factor."""
        return {
            name: (len(topic.partitions), len(topic.partitions[0].replicas) if topic.partitions else 0)
            for name, topic in self.metadata().topics.items()
        }

    def describe(self, names: Iterable[str]) -> dict[str, ActualTopic]:
        """Return a mapping from the name of each topic that exists to its actual state."""
        topics = self.topics()
        existing = [name for name in names if name in topics]
        with self._request(f"describe topics {', '.join(existing)}"):
            described = topic_requests.describe(self._admin, existing, self._timeout_s)
            configs = topic_requests.configs(self._admin, existing, seconds=self._timeout_s)
        return {name: ActualTopic(*topics[name], configs[name], described[name][0]) for name in existing}

    def create(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int,
        config: dict[str, str],
        only_validate: bool = False,
    ) -> None:
        """Create a topic. With `only_validate`, the brokers only check whether they would create it."""
        new_topic = NewTopic(topic, num_partitions=partitions, replication_factor=replication_factor, config=config)
        futures = self._admin.create_topics([new_topic], request_timeout=self._timeout_s, validate_only=only_validate)
        self._result(futures[topic], f"create topic {topic}")

    def set_config(self, topic: str, config: dict[str, str], *, only_validate: bool = False) -> None:
        """Set the settings in `config`. The topic's other settings do not change. `only_validate` is as in create()."""
        entries = [
            ConfigEntry(
                key, value, source=ConfigSource.DYNAMIC_TOPIC_CONFIG, incremental_operation=AlterConfigOpType.SET
            )
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        futures = self._admin.incremental_alter_configs(
            [resource], request_timeout=self._timeout_s, validate_only=only_validate
        )
        self._result(futures[resource], f"configure topic {topic}")

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Increase the partition count of a topic to `partitions`."""
        request = [NewPartitions(topic, new_total_count=partitions)]
        futures = self._admin.create_partitions(request, request_timeout=self._timeout_s)
        self._result(futures[topic], f"add partitions to topic {topic}")

    def delete(self, topic: str) -> None:
        futures = self._admin.delete_topics([topic], request_timeout=self._timeout_s)
        self._result(futures[topic], f"delete topic {topic}")

    def has_records(self, topic: str, partitions: int) -> bool:
        """Return whether a topic contains records, including uncommitted records, or transaction markers."""
        return any(bound.first < bound.end for bound in self._bounds(topic, range(partitions), UNCOMMITTED).values())

    def end_offset(self, topic: str) -> int | None:
        """Return the end offset of partition 0, or None if the topic does not exist."""
        if topic not in self.metadata().topics:
            return None
        return self._bounds(topic, [0], UNCOMMITTED)[0].end

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic, which changes if the topic is deleted and created again.

        The id is empty if the cluster does not assign ids.
        """
        with self._request(f"describe topic {topic}"):
            return topic_requests.describe(self._admin, [topic], self._timeout_s)[topic][0]

    def bounds(self, topic: str) -> dict[int, Bounds]:
        """Return a mapping from partition numbers to bounds. Raises UnreachableError if the topic does not exist."""
        metadata = self.metadata(topic).topics[topic]
        if metadata.error is not None:
            raise topic_requests.unreadable(topic, metadata.error, hint=READ_TOPIC_HINT)
        return self._bounds(topic, sorted(metadata.partitions), IsolationLevel.READ_COMMITTED)

    def newest_times(self, topics: Iterable[str]) -> dict[str, float]:
        """Return the newest timestamp, in seconds since 1970, of each topic that exists and has records."""
        counts = self.topics()
        places = {
            TopicPartition(name, number): OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
            for name in topics
            for number in range(counts.get(name, (0, 0))[0])
        }
        with self._request("read the newest timestamps"):
            futures = self._admin.list_offsets(places, request_timeout=self._timeout_s) if places else {}
            times = sorted((future.result(self._timeout_s + 5).timestamp, key.topic) for key, future in futures.items())
        return {topic: timestamp / 1000 for timestamp, topic in times if timestamp >= 0}

    def offsets_at(self, topic: str, partitions: Iterable[int], seconds: float) -> dict[int, int]:
        """Map each partition to the offset of its first record at or after a Unix time; -1 if there is no record."""
        spec = OffsetSpec.for_timestamp(round(seconds * 1000))
        with self._request(f"read offsets of topic {topic}"):
            return topic_requests.offsets(self._admin, topic, [*partitions], spec, seconds=self._timeout_s)

    def open_transactions(self, topics: Mapping[str, ActualTopic]) -> dict[tuple[str, int], int]:
        """Return the last stable offset of each partition of `topics` with an open transaction.

        The last stable offset is the offset of the first record in the partition's oldest open transaction.
        """
        found: dict[tuple[str, int], int] = {}
        for topic, actual_topic in topics.items():
            partitions = range(actual_topic.partitions)
            stable = self._bounds(topic, partitions, IsolationLevel.READ_COMMITTED)
            actual = self._bounds(topic, partitions, UNCOMMITTED)
            found |= {(topic, n): bound.end for n, bound in stable.items() if bound.end < actual[n].end}
        return found

    def committed_offsets(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return a mapping from each partition with a committed offset of the group to this offset."""
        request = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number) for number in partitions])]
        futures = self._admin.list_consumer_group_offsets(request, require_stable=True, request_timeout=self._timeout_s)
        offsets = self._result(futures[group], f"read offsets of group {group}").topic_partitions or []
        return {entry.partition: entry.offset for entry in offsets if entry.offset >= 0}

    def delete_records(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records before the offset of each partition in `offsets`."""
        request = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
        for future in self._admin.delete_records(request, request_timeout=self._timeout_s).values():
            self._result(future, f"delete records of topic {topic}")

    def _bounds(self, topic: str, partitions: Collection[int], level: IsolationLevel) -> dict[int, Bounds]:
        with self._request(f"read offsets of topic {topic}"):
            return topic_requests.bounds(self._admin, topic, partitions, level, self._timeout_s)

    def _result(self, future: Future[T], action: str) -> T:
        with self._request(action):
            return future.result(timeout=self._timeout_s + 5)

    @contextmanager
    def _request(self, action: str) -> Iterator[None]:
        """Convert Kafka's errors for a request into RejectedError or UnreachableError."""
        try:
            yield
        except KafkaException as error:
            message = f"Kafka at {self.kafka.bootstrap_servers}: {action}: {error.args[0].str()}"
            raise RejectedError(message) from None
        except TimeoutError:
            message = (
                f"Kafka at {self.kafka.bootstrap_servers}: {action}: no response within {self._timeout_s:g} seconds"
            )
            raise UnreachableError(message, "check the brokers, then run the command again") from None
