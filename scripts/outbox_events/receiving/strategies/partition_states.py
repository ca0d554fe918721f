"""What the brokers know of assigned partitions: topic id, first offset, end, and the group's committed offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from outbox_events.kafka import topic_requests
from outbox_events.kafka.admin_clients import admin_client
from outbox_events.kafka.topic_requests import REQUEST_S
from outbox_events.receiving.strategies.positions import Partition, PartitionState


class PartitionStates:
    """Asks the brokers about the partitions of a consumer. Methods raise KafkaException."""

    def __init__(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """`settings` are those of the consumer."""
        self._consumer = consumer
        self._admin = admin_client(settings)

    def read(self, partitions: Sequence[TopicPartition]) -> dict[Partition, PartitionState]:
        """Return the states of the partitions."""
        topics = topic_requests.describe(self._admin, {partition.topic for partition in partitions})
        states = {}
        for partition in partitions:
            first, end = self._consumer.get_watermark_offsets(
                TopicPartition(partition.topic, partition.partition), timeout=REQUEST_S, cached=False
            )
            states[partition.topic, partition.partition] = PartitionState(topics[partition.topic][0], first, end)
        return states

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[Partition, int]:
        """Return the committed offsets of the group, of partitions that have one."""
        asked = [TopicPartition(partition.topic, partition.partition) for partition in partitions]
        answers = self._consumer.committed(asked, timeout=REQUEST_S) if asked else []
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
        return {(answer.topic, answer.partition): answer.offset for answer in answers if answer.offset >= 0}
