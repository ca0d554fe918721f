"""What the brokers know of assigned partitions: topic id, first offset, end, and the group's committed offset."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from outbox_kit import topic_requests
from outbox_kit.receiving.strategies.positions import Partition, PartitionState
from outbox_kit.topic_requests import REQUEST_S


def read(
    consumer: Consumer, admin: AdminClient, partitions: Sequence[TopicPartition]
) -> dict[Partition, PartitionState]:
    """Return the states of the partitions. Raises KafkaException."""
    topics = topic_requests.describe(admin, {partition.topic for partition in partitions})
    states = {}
    for partition in partitions:
        first, end = consumer.get_watermark_offsets(
            TopicPartition(partition.topic, partition.partition), timeout=REQUEST_S, cached=False
        )
        states[partition.topic, partition.partition] = PartitionState(topics[partition.topic][0], first, end)
    return states


def committed(consumer: Consumer, partitions: Sequence[TopicPartition]) -> dict[Partition, int]:
    """Return the committed offsets of the group, of partitions that have one. Raises KafkaException."""
    asked = [TopicPartition(partition.topic, partition.partition) for partition in partitions]
    answers = consumer.committed(asked, timeout=REQUEST_S) if asked else []
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return {(answer.topic, answer.partition): answer.offset for answer in answers if answer.offset >= 0}
