"""What the brokers know of assigned partitions: topic id, first offset, end, and the group's committed offset."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from outbox_kit.receiving.strategies.positions import Partition, PartitionState
from outbox_kit.topic_ids import known_id

REQUEST_S = 20.0


def topic_ids(admin: AdminClient, partitions: Sequence[TopicPartition]) -> dict[str, str]:
    """Return the ids of the topics, which differ from those of earlier topics of the same name.

    An id is empty if the cluster assigns no ids. Raises KafkaException.
    """
    names = sorted({partition.topic for partition in partitions})
    if not names:
        return {}
    futures = admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_S)
    return {name: known_id(future.result(REQUEST_S).topic_id) for name, future in futures.items()}


def read(
    consumer: Consumer, admin: AdminClient, partitions: Sequence[TopicPartition]
) -> dict[Partition, PartitionState]:
    """Return the states of the partitions. Raises KafkaException."""
    ids = topic_ids(admin, partitions)
    states = {}
    for partition in partitions:
        first, end = consumer.get_watermark_offsets(
            TopicPartition(partition.topic, partition.partition), timeout=REQUEST_S, cached=False
        )
        states[partition.topic, partition.partition] = PartitionState(ids[partition.topic], first, end)
    return states


def committed(consumer: Consumer, partitions: Sequence[TopicPartition]) -> dict[Partition, int]:
    """Return the committed offsets of the group, of partitions that have one. Raises KafkaException."""
    asked = [TopicPartition(partition.topic, partition.partition) for partition in partitions]
    answers = consumer.committed(asked, timeout=REQUEST_S) if asked else []
    return {(answer.topic, answer.partition): answer.offset for answer in answers if answer.offset >= 0}
