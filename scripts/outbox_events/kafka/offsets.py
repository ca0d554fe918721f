"""Read a consumer's committed offsets, store the offsets of a processed batch, or rewind to read a batch again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from outbox_events.errors import ConfigurationError
from outbox_events.kafka.topic_requests import kafka_error

# The partition was assigned to another consumer, which will read the batch again.
REVOKED = (KafkaError._STATE, KafkaError._UNKNOWN_PARTITION)


def source_of(message: Message) -> tuple[str, int]:
    """Return the topic and partition of a polled message."""
    return message.topic() or "", message.partition() or 0


def store(consumer: Consumer, messages: Sequence[Message]) -> None:
    """Call `store_positions` with the offsets that follow the batch."""
    ends = {source_of(message): (message.offset() or 0) + 1 for message in messages}
    store_positions(consumer, [TopicPartition(*source, end) for source, end in ends.items()])


def store_positions(consumer: Consumer, positions: list[TopicPartition]) -> None:
    """Store `positions`, the offsets of the next records to process, so that the consumer commits them.

    Raises ConfigurationError if the consumer stores offsets automatically, because it does so before processing.
    """
    try:
        consumer.store_offsets(offsets=positions)
    except KafkaException as error:
        if kafka_error(error).code() == KafkaError._INVALID_ARG:
            message = "the consumer stores offsets before the records are processed"
            raise ConfigurationError(message, "set enable.auto.offset.store to False") from error
        if kafka_error(error).code() not in REVOKED:
            raise


def rewind(consumer: Consumer, messages: Sequence[Message]) -> None:
    """Seek to the beginning of the batch, so that the consumer reads its records again."""
    starts = {source_of(message): message.offset() or 0 for message in reversed(messages)}
    seek(consumer, [TopicPartition(*source, start) for source, start in starts.items()])


def seek(consumer: Consumer, positions: Iterable[TopicPartition]) -> None:
    """Seek to those positions whose partitions are still assigned. Raises KafkaException."""
    for position in positions:
        try:
            consumer.seek(position)
        except KafkaException:
            assigned = {(partition.topic, partition.partition) for partition in consumer.assignment()}
            if (position.topic, position.partition) in assigned:
                raise


def committed(consumer: Consumer, partitions: Iterable[TopicPartition], seconds: float) -> dict[tuple[str, int], int]:
    """Return the group's committed offset for each partition that has one. Raises KafkaException."""
    asked = [TopicPartition(partition.topic, partition.partition) for partition in partitions]
    # Not in another thread: during a callback, the client would wait there for the end of the callback's poll.
    answers = consumer.committed(asked, timeout=seconds) if asked else []
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return {(answer.topic, answer.partition): answer.offset for answer in answers if answer.offset >= 0}


def lag(
    consumer: Consumer, retried: Mapping[tuple[str, int], int] = MappingProxyType({})
) -> dict[tuple[str, int], int]:
    """Return how many offsets follow the position of each assigned partition, as of the last fetch.

    `retried` contains the positions of partitions whose records are processed again.
    """
    result: dict[tuple[str, int], int] = {}
    for place in consumer.position(consumer.assignment()):
        source = (place.topic, place.partition)
        position = retried.get(source, place.offset)
        _, end = consumer.get_watermark_offsets(place, cached=True)
        if position >= 0 and end >= 0:
            result[source] = max(0, end - position)
    return result
