"""Replace the consumer of a Receiver with one that reads topics in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message, TopicPartition

from outbox_events.kafka.offsets import source_of
from outbox_events.receiving.event import Event
from outbox_events.receiving.partition_states import Partition

Rebalance = Callable[[Any, list[TopicPartition]], None]


class MemoryConsumer:
    """The only member of its group, with the methods of a Consumer that a Receiver calls.

    A partition exists from its first record on, and is then assigned. Records are polled in the order in which they
    were appended, but after a seek, the partition follows the other partitions. `stored` contains the stored offsets.
    """

    def __init__(self) -> None:
        self.stored: dict[Partition, int] = {}
        self._records: dict[Partition, list[Message]] = {}
        self._queue: list[Message] = []
        self._assigned: set[Partition] = set()
        self._paused: set[Partition] = set()

    def append(self, event: Event) -> str:
        """Append the record of an event to its partition, and return its place."""
        records = self._records.setdefault(event.source, [])
        headers = list(event.raw_headers or event.headers.items())
        timestamp = (TIMESTAMP_CREATE_TIME, event.timestamp_ms)
        message = Message(*event.source, len(records), event.key, event.raw_value, headers, timestamp=timestamp)
        records.append(message)
        self._queue.append(message)
        return f"{event.topic}/{event.partition}/{len(records) - 1}"

    @property
    def has_unfinished(self) -> bool:
        """Whether a record is not followed by a stored offset."""
        return any(self.stored.get(source, 0) < len(records) for source, records in self._records.items())

    def subscribe(self, _: list[str], *, on_assign: Rebalance, on_revoke: Rebalance, **__: Rebalance) -> None:
        self._on_assign, self._on_revoke = on_assign, on_revoke

    def poll(self, _: float) -> Message | None:
        """Return the next record of the partitions that are not paused."""
        added = self._records.keys() - self._assigned
        if added:
            self._assigned |= added
            self._on_assign(self, [TopicPartition(*source) for source in sorted(added)])
        message = next((message for message in self._queue if source_of(message) not in self._paused), None)
        if message is not None:
            self._queue.remove(message)
        return message

    def seek(self, place: TopicPartition) -> None:
        source = place.topic, place.partition
        others = [message for message in self._queue if source_of(message) != source]
        self._queue = [*others, *self._records[source][place.offset :]]

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused |= {(place.topic, place.partition) for place in partitions}

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused -= {(place.topic, place.partition) for place in partitions}

    def store_offsets(self, *, offsets: Iterable[TopicPartition]) -> None:
        self.stored |= {(place.topic, place.partition): place.offset for place in offsets}

    def incremental_assign(self, _: Iterable[TopicPartition]) -> None:
        """Do nothing, because each partition is read from its beginning."""

    def unsubscribe(self) -> None:
        """Revoke all partitions."""
        self._on_revoke(self, [TopicPartition(*source) for source in sorted(self._assigned)])

    def consume(self, _: int, timeout: float) -> list[Message]:
        """Return no records, because a Receiver calls this method only after `unsubscribe`."""
        del timeout
        return []

    def close(self) -> None:
        """Do nothing, because nothing is open."""
