"""Request the offsets of a consumer's partitions, and refuse to continue where records are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, Consumer, TopicPartition

from outbox_events.errors import RefusedError
from outbox_events.kafka import offsets, topic_requests
from outbox_events.kafka.topic_requests import EARLIEST, REQUEST_S, admin_client

Partition = tuple[str, int]
"""Topic and partition."""
STARTS = {name: OFFSET_BEGINNING for name in ("smallest", "earliest", "beginning")}
STARTS |= {name: OFFSET_END for name in ("largest", "latest", "end")}
RESET = "run kafka-consumer-groups.sh --group {} --topic {}:{} --reset-offsets --execute --to-offset {} while the group"


@dataclass(frozen=True)
class PartitionState:
    """State of a partition as reported by the broker. The topic id is empty if the cluster assigns none."""

    topic_id: str
    first: int
    """Log start offset, which is the offset of the first record that has not been deleted."""
    end: int
    """Offset after the last record that the consumer can read."""


class PartitionStates:
    """Requests the states and committed offsets of a consumer's partitions. Methods raise KafkaException."""

    def __init__(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """`settings` are the settings of the receiver."""
        self._consumer = consumer
        self._admin = admin_client(settings)
        self._group = str(settings["group.id"])
        self.start = STARTS.get(str(settings.get("auto.offset.reset")), OFFSET_INVALID)
        """Logical offset at which a partition without a committed offset starts, according to auto.offset.reset."""
        self._level = topic_requests.isolation_level(settings)

    def read(self, partitions: Sequence[TopicPartition]) -> dict[Partition, PartitionState]:
        """Return a mapping from each partition to its state."""
        states = {}
        for topic, (topic_id, _) in topic_requests.describe(self._admin, {entry.topic for entry in partitions}).items():
            numbers = [entry.partition for entry in partitions if entry.topic == topic]
            for number, bounds in topic_requests.bounds(self._admin, topic, numbers, self._level).items():
                states[topic, number] = PartitionState(topic_id, bounds.first, bounds.end)
        return states

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[Partition, int]:
        """Return the group's committed offset for each partition that has one."""
        return offsets.committed(self._consumer, partitions, REQUEST_S)

    def committed_starts(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions with their committed offset or, without one, with `start`.

        Raises RefusedError if records after a committed offset were deleted.
        """
        committed = self.committed(partitions)
        for topic in {topic for topic, _ in committed}:
            numbers = [number for name, number in committed if name == topic]
            for number, first in topic_requests.offsets(self._admin, topic, numbers, EARLIEST).items():
                if committed[topic, number] < first:
                    place = f"topic {topic}, partition {number}"
                    subject = f"{place}: the committed offset {committed[topic, number]} of {self._group}"
                    command = RESET.format(self._group, topic, number, first)
                    raise deleted_error(subject, first, f"{command} has no members, to continue without these records")
        return [
            TopicPartition(place.topic, place.partition, committed.get((place.topic, place.partition), self.start))
            for place in partitions
        ]


def deleted_error(subject: str, first: int, hint: str) -> RefusedError:
    """Return the error for a position before the log start offset."""
    return RefusedError(f"{subject} is before the first offset {first}: records in between were deleted", hint)
