"""Requests for the identity, the bounds and the settings of the topic of a LatestState."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from outbox_kit.errors import ConfigurationError, UnreachableError
from outbox_kit.topic_ids import known_id

_READ_HINT = "check that the topic exists, the brokers, and the settings and permissions of the client"
# After these errors librdkafka retries until the request times out. The timeout error does not contain the cause.
_TIMEOUT_CAUSES = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE})
_NO_LEADER = frozenset(
    {KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE}
)
_RETRY_S = 0.1
_DEFAULT_DELETE_RETENTION_S = 24 * 3600.0
T = TypeVar("T")


class NoLeaderError(UnreachableError):
    """A partition has no leader yet: the topic was just created, or the leader moves to another broker."""


@dataclass(frozen=True)
class TopicDescription:
    """Identity and bounds of a topic, by partition number. `ends` are the ends for consumers with read_committed."""

    id: str
    """Differs from the id of an earlier topic with the same name; empty if the cluster assigns no ids."""
    starts: dict[int, int]
    ends: dict[int, int]

    def contains(self, positions: Mapping[int, int]) -> bool:
        """Return whether each position is between the start and the end of an existing partition."""
        return positions.keys() <= self.ends.keys() and all(
            self.starts[number] <= offset <= self.ends[number] for number, offset in positions.items()
        )


class TopicRequests:
    """Sends requests about one topic. Methods raise UnreachableError after `seconds`, or if the topic is missing."""

    def __init__(self, settings: Mapping[str, Any], topic: str, seconds: float) -> None:
        self._topic = topic
        self._seconds = seconds
        self._cause = ""  # of a timeout, such as a wrong password
        try:
            own: dict[str, Any] = {"error_cb": self._on_error, **settings, "log_level": 0}
            self._admin = AdminClient(own)
        except KafkaException as error:
            raise invalid_settings(error) from None

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in _TIMEOUT_CAUSES:
            self._cause = error.str()

    def describe(self) -> TopicDescription:
        """Return the identity and the bounds. Repeats the requests while a partition has no leader."""
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            try:
                return self._describe()
            except NoLeaderError:
                time.sleep(_RETRY_S)
        return self._describe()

    def _describe(self) -> TopicDescription:
        future = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=self._seconds)
        described = self._result(future[self._topic])
        numbers = [partition.id for partition in described.partitions]
        earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        topic_id = known_id(described.topic_id)
        return TopicDescription(topic_id, self._offsets(numbers, earliest), self._offsets(numbers, latest))

    def delete_retention_s(self) -> float:
        """Return delete.retention.ms in seconds: for this time a reader can still find a tombstone.

        Without the permission to read the settings of the topic, this is Kafka's default.
        """
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        future = self._admin.describe_configs([resource], request_timeout=self._seconds)[resource]
        try:
            return int(future.result(self._seconds + 5)["delete.retention.ms"].value) / 1000
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise unreadable(self._topic, error.args[0]) from None
            return _DEFAULT_DELETE_RETENTION_S

    def _offsets(self, numbers: list[int], spec: OffsetSpec) -> dict[int, int]:
        request = {TopicPartition(self._topic, number): spec for number in numbers}
        level = IsolationLevel.READ_COMMITTED
        futures = self._admin.list_offsets(request, isolation_level=level, request_timeout=self._seconds)
        return {partition.partition: self._result(future).offset for partition, future in futures.items()}

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result(timeout=self._seconds + 5)
        except KafkaException as error:
            self._admin.poll(0)  # calls error_cb
            raise unreadable(self._topic, error.args[0], self._cause) from None
        except TimeoutError:
            message = f"cannot read topic {self._topic}: no response within {self._seconds:g} s"
            raise UnreachableError(message, _READ_HINT) from None


def unreadable(topic: str, error: KafkaError, cause: str = "") -> UnreachableError:
    """Return the error of a topic that cannot be read. `cause` is an earlier error of the connection."""
    error_class = NoLeaderError if error.code() in _NO_LEADER else UnreachableError
    is_missing = error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
    reason = "it does not exist" if is_missing else error.str()
    return error_class(f"cannot read topic {topic}: {reason}{cause and f'; {cause}'}", _READ_HINT)


def invalid_settings(error: KafkaException) -> ConfigurationError:
    message = f"settings of the Kafka client: {error.args[0].str()}"
    return ConfigurationError(message, "correct the librdkafka properties that are passed to LatestState")
