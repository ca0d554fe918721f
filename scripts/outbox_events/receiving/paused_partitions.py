"""Partitions that wait for the next attempt of an event, while the consumer polls the others."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from outbox_events.kafka import offsets
from outbox_events.receiving.event import Event

Partition = tuple[str, int]


@dataclass(frozen=True)
class Pause:
    """A partition that waits at the position of an event."""

    event: Event
    error: Exception = field(repr=False)
    attempts: int
    """How often the event was the cause of an error."""
    failures: int
    """How often the event was tried without success, also during outages; determines the delay."""
    due: float
    """Value of time.monotonic() at which the partition is resumed."""
    is_recovering: bool = False
    """Whether no attempt is left and the recoverer failed."""


class PausedPartitions:
    """Pauses partitions, so that no later event overtakes, and resumes them at the failed event.

    Later events of the same key stay behind it in the partition, so the order of each key is kept.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._pauses: dict[Partition, Pause] = {}
        self._last: dict[Partition, Pause] = {}

    def pause(self, pause: Pause) -> None:
        """Pause the partition of the event until `pause.due`."""
        event = pause.event
        self._pauses[event.source] = self._last[event.source] = pause
        self._consumer.pause([TopicPartition(*event.source)])

    def last(self, event: Event) -> Pause | None:
        """Return the last pause for this event."""
        pause = self._last.get(event.source)
        return pause if pause is not None and pause.event.offset == event.offset else None

    def resume_due(self) -> None:
        """Resume the partitions whose time has come, each at its event."""
        now = time.monotonic()
        for partition, pause in list(self._pauses.items()):
            if pause.due <= now:
                # Before it is resumed: a later event could be received in between.
                offsets.seek(self._consumer, [TopicPartition(*partition, pause.event.offset)])
                self._consumer.resume([TopicPartition(*partition)])
                del self._pauses[partition]

    def seconds_left(self, limit: float) -> float:
        """Return the seconds until the next partition is due, at most `limit`."""
        now = time.monotonic()
        return max(0.0, min([limit, *(pause.due - now for pause in self._pauses.values())]))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that were assigned or revoked: attempts start again."""
        for partition in partitions:
            if self._pauses.pop((partition.topic, partition.partition), None):
                # The client would keep the pause when the partition is assigned again.
                self._consumer.resume([TopicPartition(partition.topic, partition.partition)])
            self._last.pop((partition.topic, partition.partition), None)

    def succeeded(self, events: Iterable[Event]) -> None:
        """Forget the failures of events that were handled."""
        if self._last:
            for event in events:
                if self.last(event):
                    del self._last[event.source]

    def __iter__(self) -> Iterator[Pause]:
        return iter(list(self._pauses.values()))

    def __repr__(self) -> str:
        return f"PausedPartitions({list(self._pauses.values())})"

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._pauses
