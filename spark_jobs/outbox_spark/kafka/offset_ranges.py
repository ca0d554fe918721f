"""Resolve, once on the driver, the offsets that a run reads: from the committed offsets to the end of the topic.

Committed offsets that no longer match the topic are rejected. This happens if the topic was recreated or has fewer
partitions, if an offset is beyond the end of its partition, or if records were deleted before they were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec

from outbox_events.errors import ConfigurationError, RefusedError, UnreachableError
from outbox_events.kafka import topic_requests
from outbox_events.kafka.topic_requests import ClientErrors, kafka_error
from outbox_spark.jobs.model import Ordering, ReadRange, TableProgress
from outbox_spark.kafka.settings import require_supported

REQUEST_SECONDS = 30.0
RESULT_SECONDS = REQUEST_SECONDS + 5
UNREACHABLE_HINT = "check `kafka` in the environment file and the ACLs, and make sure that the broker is running"

_NO_RESPONSE = topic_requests.TIMEOUT_CAUSES | {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
}
_REBUILD_HINT = "if the topic was changed on purpose, run outbox-rebuild; the table stays readable during the rebuild"
_MAX_DURATION = timedelta(days=36_500)  # Kafka accepts up to 2^63 ms, which exceeds the maximum of timedelta


class ClusterUnreachableError(UnreachableError):
    """No broker answers a request for metadata, which every broker can answer, so that no topic can be read."""


@dataclass(frozen=True)
class TopicDescription:
    """Offsets and settings of a topic, as reported by the broker."""

    name: str
    topic_id: str
    start_offsets: Mapping[int, int]
    """Log start offset of each partition."""
    end_offsets: Mapping[int, int]
    """Last stable offset of each partition, at which a read_committed consumer stops."""
    delete_retention: timedelta = timedelta(days=1)
    """delete.retention.ms, the time after which a tombstone may be removed. The value is Kafka's default if the user is
    not authorized to describe the topic's configuration."""
    min_compaction_lag: timedelta = timedelta(0)
    """min.compaction.lag.ms, the minimum age of a record that can be compacted."""
    is_deleted: bool = False
    """Whether cleanup.policy contains `delete`, so that Kafka removes the newest record of a key after retention.ms."""


class TopicAdmin:
    """Requests descriptions and offsets of topics of one cluster. It connects with the first request."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Raises ConfigurationError for settings that the client rejects."""
        self._servers = settings.get("bootstrap.servers", "")
        self._errors = ClientErrors()
        self._client = _admin_client(settings, self._errors)

    def describe(self, topic: str) -> TopicDescription:
        """Request the description of a topic.

        Raises ConfigurationError for an unknown topic, ClusterUnreachableError if no broker responds, and
        UnreachableError for other errors.
        """
        return self.describe_all([topic])[topic]

    def describe_all(self, topics: Sequence[str]) -> dict[str, TopicDescription]:
        """Request the descriptions of several topics at once. Raises the same errors as `describe`."""
        names = ", ".join(topics)
        try:
            with _request(names, self._servers, no_response=ClusterUnreachableError):
                found = topic_requests.describe(self._client, topics, REQUEST_SECONDS)
            with _request(names, self._servers):  # the leader of each partition answers
                numbers = {topic: partitions for topic, (_, partitions) in found.items()}
                bounds = topic_requests.bounds_of_topics(self._client, numbers, seconds=REQUEST_SECONDS)
                settings = _topic_settings(self._client, topics)
        except UnreachableError as error:
            self._client.poll(0)  # delivers the errors that occurred during the request
            if self._errors.cause:
                raise type(error)(f"{error.message}; {self._errors.cause}", error.hint) from error
            raise
        return {
            topic: TopicDescription(
                name=topic,
                topic_id=topic_id,
                start_offsets={partition: bound.first for partition, bound in bounds[topic].items()},
                end_offsets={partition: bound.end for partition, bound in bounds[topic].items()},
                **settings.get(topic, {}),
            )
            for topic, (topic_id, _) in found.items()
        }

    def offsets_at(self, topic: TopicDescription, time: datetime) -> dict[int, int]:
        """Return, for each partition, the first offset whose timestamp is `time` or later, or else the end offset."""
        spec, numbers = OffsetSpec.for_timestamp(int(time.timestamp() * 1000)), sorted(topic.end_offsets)
        with _request(topic.name, self._servers):
            offsets = topic_requests.offsets(self._client, topic.name, numbers, spec, seconds=REQUEST_SECONDS)
        return {
            partition: topic.end_offsets[partition] if offset < 0 else offset for partition, offset in offsets.items()
        }


def describe(settings: Mapping[str, str], topic: str) -> TopicDescription:
    """Request the description of a topic with a client of its own. The errors are those of TopicAdmin."""
    return TopicAdmin(settings).describe(topic)


def resolve_range(topic: TopicDescription, committed: TableProgress | None) -> ReadRange:
    """Return the range that a run reads. Raises RefusedError if the committed offsets do not match the topic."""
    if committed is None:
        return ReadRange(topic.name, topic.topic_id, 0, start=dict(topic.start_offsets), end=dict(topic.end_offsets))
    _check_identity(topic, committed)
    for partition, offset in sorted(committed.offsets.items()):
        _check_offset(topic, partition, offset)
    # Partitions that were added since the last commit are read from their beginning.
    start = {**topic.start_offsets, **committed.offsets}
    return ReadRange(topic.name, topic.topic_id, _partition_epoch(topic, committed), start, end=dict(topic.end_offsets))


def _check_identity(topic: TopicDescription, committed: TableProgress) -> None:
    if committed.topic != topic.name:
        message = f"the table was written from topic {committed.topic}, not from {topic.name}"
        hint = "check the target and the table; if the topic was changed on purpose, run `outbox-rebuild --new-topic`"
        raise RefusedError(message, hint)
    if committed.topic_id != topic.topic_id:
        message = f"topic {topic.name} was deleted and recreated: its id is {topic.topic_id}, not {committed.topic_id}"
        steps = "`outbox apply`, `outbox backfill --restart` and `outbox-rebuild --new-topic`"
        raise RefusedError(message, f"check bootstrap_servers and the target; if both are correct, run {steps}")
    missing = sorted(set(committed.offsets) - set(topic.end_offsets))
    if missing:
        message = (
            f"topic {topic.name} has {len(topic.end_offsets)} partitions, but the table has stored offsets for "
            f"{len(committed.offsets)}; partition {missing[0]} does not exist in the topic"
        )
        raise RefusedError(message, f"check bootstrap_servers (Kafka never removes partitions); {_REBUILD_HINT}")


def _check_offset(topic: TopicDescription, partition: int, offset: int) -> None:
    location = f"topic {topic.name} partition {partition}"
    if offset > topic.end_offsets[partition]:
        end = topic.end_offsets[partition]
        message = f"{location} ends at offset {end}, but the table's committed offset is {offset}"
        raise RefusedError(message, f"check bootstrap_servers, and whether the broker lost records; {_REBUILD_HINT}")
    # Retention and DeleteRecords, unlike compaction, raise the log start offset and remove records that were not read.
    if offset < topic.start_offsets[partition]:
        message = (
            f"{location} starts at offset {topic.start_offsets[partition]}, but "
            f"the table's committed offset is {offset}: the records between these offsets were deleted"
        )
        raise RefusedError(message, f"set cleanup.policy of the topic to `compact`; {_REBUILD_HINT}")


def _partition_epoch(topic: TopicDescription, committed: TableProgress) -> int:
    if not committed.offsets or len(topic.end_offsets) == len(committed.offsets):
        return committed.partition_epoch
    if committed.ordering is Ordering.OFFSET:
        message = (
            f"topic {topic.name} grew from {len(committed.offsets)} to {len(topic.end_offsets)} partitions, "
            "and its records have no source_sequence; offsets of different partitions cannot be compared"
        )
        hint = "materialize a new topic into a new table, because outbox-rebuild would read the same topic"
        raise RefusedError(message, hint)
    return committed.partition_epoch + 1


def _admin_client(settings: Mapping[str, str], errors: ClientErrors) -> AdminClient:
    require_supported(settings)  # before librdkafka loads a library that a job file names
    # Errors are reported by exceptions; librdkafka's log lines would repeat them.
    configuration: dict[str, Any] = {**settings, "log_level": "0", "error_cb": errors}
    try:
        return AdminClient(configuration)
    except KafkaException as error:
        message = f"invalid Kafka client settings: {kafka_error(error).str()}"
        raise ConfigurationError(message, "correct kafka.client in the environment file") from error


def _topic_settings(admin: AdminClient, topics: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of each topic that the user may describe."""
    try:
        configs = topic_requests.configs(admin, topics, seconds=REQUEST_SECONDS)
    except KafkaException as error:
        if kafka_error(error).code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        if len(topics) == 1:
            return {}
        return {topic: settings for name in topics for topic, settings in _topic_settings(admin, [name]).items()}
    return {topic: _parsed_settings(config) for topic, config in configs.items()}


def _parsed_settings(config: Mapping[str, str]) -> dict[str, Any]:
    names = {"delete_retention": "delete.retention.ms", "min_compaction_lag": "min.compaction.lag.ms"}
    times = {
        field: min(timedelta(milliseconds=min(int(config[name]), 10**15)), _MAX_DURATION)
        for field, name in names.items()
        if name in config
    }
    return {**times, "is_deleted": "delete" in config.get("cleanup.policy", "").split(",")}


@contextmanager
def _request(topic: str, servers: str, no_response: type[UnreachableError] = UnreachableError) -> Iterator[None]:
    """Convert errors of requests to those of TopicAdmin.describe. `no_response` is raised if no response arrives."""
    try:
        yield
    except KafkaException as error:
        cause = kafka_error(error)
        if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            message = f"topic {topic} does not exist at {servers}"
            raise ConfigurationError(message, "run `outbox apply` to create the topics of the pipeline") from error
        message = f"Kafka at {servers}: topic {topic}: {cause.str()}"
        kind = no_response if cause.code() in _NO_RESPONSE else UnreachableError
        raise kind(message, UNREACHABLE_HINT) from error
    except TimeoutError as error:
        message = f"Kafka at {servers}: topic {topic}: no response within {RESULT_SECONDS:g} s"
        raise no_response(message, UNREACHABLE_HINT) from error
