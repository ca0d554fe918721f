"""What a consumer group has acknowledged, and where topics begin and end; one method per call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from outbox_kit.errors import RejectedError, UnreachableError
from outbox_kit.kafka.client import REQUEST_TIMEOUT_S, client_settings
from outbox_kit.pipeline import Kafka

NOBODY_ELSE = "is another consumer in this group? it is the kit's own"


@dataclass(frozen=True)
class Bounds:
    """First offset of a partition, and the one after its last committed record or transaction marker."""

    first: int
    end: int


def bounds(kafka: Kafka, topic: str) -> dict[int, Bounds]:
    """Bounds of every partition of a topic. Raises UnreachableError where there is no such topic."""
    admin = AdminClient(client_settings(kafka))
    try:
        found = admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        places = [TopicPartition(topic, number) for number in found.partitions]
        first = _offsets(admin, places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        end = _offsets(admin, places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    except (KafkaException, TimeoutError) as error:
        message = f"cannot read topic {topic}: {_words(error)}"
        raise UnreachableError(message, "run `outbox apply`, which creates every topic") from None
    return {number: Bounds(first[number], end[number]) for number in sorted(first)}


def acknowledged(kafka: Kafka, group: str, topic: str, partitions: list[int]) -> dict[int, int]:
    """First offset of each partition that the group has not acknowledged; a partition without one is left out.

    Raises RejectedError.
    """
    places = [TopicPartition(topic, number) for number in partitions]
    request = [ConsumerGroupTopicPartitions(group, places)]
    # Kept until the answer is there: with its client, a request is gone.
    admin = AdminClient(client_settings(kafka))
    try:
        futures = admin.list_consumer_group_offsets(request, require_stable=True, request_timeout=REQUEST_TIMEOUT_S)
        found = futures[group].result(timeout=REQUEST_TIMEOUT_S + 5)
    except (KafkaException, TimeoutError) as error:
        raise RejectedError(f"offsets of group {group}: {_words(error)}") from None
    return {place.partition: place.offset for place in found.topic_partitions or [] if place.offset >= 0}


def acknowledge(kafka: Kafka, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Set the first offset that is not acknowledged, by partition. Raises RejectedError."""
    places = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    request = [ConsumerGroupTopicPartitions(group, places)]
    # Kept until the answer is there: with its client, a request is gone.
    admin = AdminClient(client_settings(kafka))
    try:
        futures = admin.alter_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)
        done = futures[group].result(timeout=REQUEST_TIMEOUT_S + 5)
        for place in done.topic_partitions or []:
            if place.error is not None:
                raise KafkaException(place.error)
    except (KafkaException, TimeoutError) as error:
        raise RejectedError(f"offsets of group {group}: {_words(error)}", NOBODY_ELSE) from None


def _offsets(admin: AdminClient, places: list[TopicPartition], which: OffsetSpec) -> dict[int, int]:
    """Records of open transactions do not count."""
    futures = admin.list_offsets(
        dict.fromkeys(places, which),
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=REQUEST_TIMEOUT_S,
    )
    return {place.partition: future.result(timeout=REQUEST_TIMEOUT_S + 5).offset for place, future in futures.items()}


def _words(error: KafkaException | TimeoutError) -> str:
    return str(error.args[0].str()) if isinstance(error, KafkaException) else f"no answer within {REQUEST_TIMEOUT_S} s"
