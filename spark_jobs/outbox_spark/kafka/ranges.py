"""What to read: from the offsets that the target holds to the end of the topic, resolved once, on the driver.

Every way in which offsets can stop meaning what they meant is refused here: a recreated topic, fewer
partitions, offsets beyond the end, records deleted before they were read.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from outbox_spark.errors import ConfigurationError, RefusedError, UnreachableError
from outbox_spark.jobs.model import Committed, Ordering, ReadRange

REQUEST_SECONDS = 30.0
T = TypeVar("T")

_REBUILD = "if that was meant, outbox-rebuild makes the table anew while it can be read"
_REFUSED = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE})
_LONGEST = timedelta(days=36_500)  # Kafka takes up to 2^63 ms, datetime does not


@dataclass(frozen=True)
class TopicState:
    """A topic as the broker has it now."""

    name: str
    topic_id: str
    earliest: Mapping[int, int]
    """By partition: the log start offset."""
    latest: Mapping[int, int]
    """By partition: the last stable offset, which is where a read_committed consumer stops."""
    delete_retention: timedelta = timedelta(days=1)
    """delete.retention.ms: a tombstone can be gone so long after it was written. Kafka's default where it is not
    known, because the user may not describe the topic's configuration."""
    min_compaction_lag: timedelta = timedelta(0)
    """min.compaction.lag.ms: no record is compacted that is younger."""


def describe(settings: Mapping[str, str], topic: str) -> TopicState:
    """Ask the broker. Raises ConfigurationError for an unknown topic or setting, UnreachableError for no answer."""
    refusals: list[str] = []
    admin = _admin(settings, refusals)
    servers = settings.get("bootstrap.servers", "")
    future = admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_SECONDS)[topic]
    try:
        description = _result(future, topic, servers)
    except UnreachableError as error:
        admin.poll(0)  # hands out what the client heard while it waited
        if refusals:
            raise UnreachableError(f"{error.message}; {refusals[-1]}", error.hint) from error
        raise
    numbers = [partition.id for partition in description.partitions]
    return TopicState(
        name=topic,
        topic_id=str(description.topic_id),
        earliest=_offsets(admin, topic, numbers, OffsetSpec.earliest(), servers),  # type: ignore[no-untyped-call]
        latest=_offsets(admin, topic, numbers, OffsetSpec.latest(), servers),  # type: ignore[no-untyped-call]
        **_durations(admin, topic, servers),
    )


def offsets_at(settings: Mapping[str, str], topic: TopicState, time: datetime) -> dict[int, int]:
    """By partition: the first offset whose record is not older than `time` (Kafka timestamp); the end if all are."""
    servers = settings.get("bootstrap.servers", "")
    spec = OffsetSpec.for_timestamp(int(time.timestamp() * 1000))
    found = _offsets(_admin(settings), topic.name, sorted(topic.latest), spec, servers)
    return {partition: topic.latest[partition] if offset < 0 else offset for partition, offset in found.items()}


def resolve(topic: TopicState, committed: Committed | None) -> ReadRange:
    """The range of one run. Pure. Raises RefusedError when the committed offsets do not fit the topic."""
    if committed is None:
        return ReadRange(topic.name, topic.topic_id, 0, start=dict(topic.earliest), end=dict(topic.latest))
    _check_identity(topic, committed)
    for partition, offset in sorted(committed.offsets.items()):
        _check_offset(topic, partition, offset)
    # Partitions that are new since then are read from their beginning.
    start = {partition: committed.offsets.get(partition, first) for partition, first in topic.earliest.items()}
    return ReadRange(topic.name, topic.topic_id, _epoch(topic, committed), start=start, end=dict(topic.latest))


def _check_identity(topic: TopicState, committed: Committed) -> None:
    if committed.topic != topic.name:
        message = f"the table was made of topic {committed.topic}, and is now asked to continue with {topic.name}"
        raise RefusedError(message, _REBUILD)
    if committed.topic_id != topic.topic_id:
        message = (
            f"topic {topic.name} was deleted and made again: its id is {topic.topic_id}, "
            f"the table was made of {committed.topic_id}"
        )
        raise RefusedError(message, f"`outbox apply` and `outbox backfill` fill the new one; {_REBUILD}")
    missing = sorted(set(committed.offsets) - set(topic.latest))
    if missing:
        message = (
            f"topic {topic.name} has {len(topic.latest)} partitions; "
            f"the table has read {len(committed.offsets)}, also partition {missing[0]}"
        )
        raise RefusedError(message, f"Kafka never removes partitions: check bootstrap_servers; {_REBUILD}")


def _check_offset(topic: TopicState, partition: int, offset: int) -> None:
    where = f"topic {topic.name} partition {partition}"
    if offset > topic.latest[partition]:
        message = f"{where} ends at offset {topic.latest[partition]}; the table has already read up to {offset}"
        raise RefusedError(message, f"the broker lost records, or this is another cluster; {_REBUILD}")
    # Compaction does not move the log start: only retention and DeleteRecords do, and both drop records
    # that this table has not seen.
    if offset < topic.earliest[partition]:
        message = (
            f"{where} starts at offset {topic.earliest[partition]}; "
            f"the table has read up to {offset}, and the records between are deleted"
        )
        raise RefusedError(message, f"check that cleanup.policy is 'compact' alone; {_REBUILD}")


def _epoch(topic: TopicState, committed: Committed) -> int:
    if not committed.offsets or len(topic.latest) == len(committed.offsets):
        return committed.partition_epoch
    if committed.ordering is Ordering.OFFSET:
        message = (
            f"topic {topic.name} grew from {len(committed.offsets)} to {len(topic.latest)} partitions, "
            "and its records carry no source_sequence: offsets of different partitions have no order"
        )
        hint = "materialize a new topic into a new table; outbox-rebuild reads the same topic, and does not help"
        raise RefusedError(message, hint)
    return committed.partition_epoch + 1


def _admin(settings: Mapping[str, str], refusals: list[str] | None = None) -> AdminClient:
    # Errors reach the user through the raised exception; librdkafka's own lines would double them. After a refusal the
    # client goes on trying, and the call ends with a time-out that does not say why: `refusals` takes the reasons.
    def hear(error: KafkaError) -> None:
        if refusals is not None and error.code() in _REFUSED:
            refusals.append(error.str())

    with_callback: dict[str, Any] = {**settings, "log_level": "0", "error_cb": hear}
    try:
        return AdminClient(with_callback)
    except KafkaException as error:
        message = f"the client settings of Kafka are refused: {error.args[0].str()}"
        raise ConfigurationError(message, "correct kafka.client in the environment file") from error


def _durations(admin: AdminClient, topic: str, servers: str) -> dict[str, timedelta]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    future = admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)[resource]
    try:
        entries = future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return {}
        _result(future, topic, servers)
        raise
    names = {"delete_retention": "delete.retention.ms", "min_compaction_lag": "min.compaction.lag.ms"}
    values = {field: entries[name].value for field, name in names.items() if name in entries}
    return {
        field: min(timedelta(milliseconds=min(int(value), 10**15)), _LONGEST)
        for field, value in values.items()
        if value is not None
    }


def _offsets(admin: AdminClient, topic: str, numbers: list[int], spec: OffsetSpec, servers: str) -> dict[int, int]:
    wanted = {TopicPartition(topic, number): spec for number in numbers}
    futures = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=REQUEST_SECONDS)
    return {partition.partition: _result(future, topic, servers).offset for partition, future in futures.items()}


def _result(future: Future[T], topic: str, servers: str) -> T:
    try:
        return future.result()
    except KafkaException as error:
        reason = error.args[0]
        if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            message = f"topic {topic} does not exist at {servers}"
            raise ConfigurationError(message, "`outbox apply` creates the topics of a pipeline") from error
        message = f"Kafka at {servers}: topic {topic}: {reason.str()}"
        raise UnreachableError(message, "check bootstrap_servers, client settings and that the broker is up") from error
