"""What the brokers know of assigned partitions: topic id, first offset, end, and the group's committed offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, TopicPartition

from outbox_events.kafka import offsets, topic_requests
from outbox_events.kafka.topic_requests import REQUEST_S, admin_client
from outbox_events.receiving.strategies.positions import Partition, PartitionState


class PartitionStates:
    """Asks the brokers about the partitions of a consumer. Methods raise KafkaException."""

    def __init__(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """`settings` are those of the consumer."""
        self._consumer = consumer
        self._admin = admin_client(settings)
        is_uncommitted = settings.get("isolation.level") == "read_uncommitted"
        self._level = IsolationLevel.READ_UNCOMMITTED if is_uncommitted else IsolationLevel.READ_COMMITTED

    def read(self, partitions: Sequence[TopicPartition]) -> dict[Partition, PartitionState]:
        """Return the states of the partitions."""
        states = {}
        for topic, (topic_id, _) in topic_requests.describe(self._admin, {entry.topic for entry in partitions}).items():
            numbers = [entry.partition for entry in partitions if entry.topic == topic]
            for number, bounds in topic_requests.bounds(self._admin, topic, numbers, self._level).items():
                states[topic, number] = PartitionState(topic_id, bounds.first, bounds.end)
        return states

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[Partition, int]:
        """Return the committed offsets of the group, of partitions that have one."""
        return offsets.committed(self._consumer, partitions, REQUEST_S)
