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
class Attempt:
    """The last attempt of an event, at whose position the partition waits; without an error, there was none."""

    event: Event
    error: Exception | None = field(default=None, repr=False)
    attempts: int = 0
    """How often the event was the cause of an error."""
    failures: int = 0
    """How often the event was tried without success, also during outages; determines the delay."""
    due: float = 0.0
    """Value of time.monotonic() at which the partition is resumed."""
    is_recovering: bool = False
    """Whether no attempt is left and the recoverer failed."""


class PausedPartitions:
    """Pauses partitions, so that no later event overtakes, and resumes them at the failed event.

    Later events of the same key stay behind it in the partition, so the order of each key is kept.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._pauses: dict[Partition, Attempt] = {}
        self._last: dict[Partition, Attempt] = {}

    def pause(self, attempt: Attempt) -> None:
        """Pause the partition of the event until `attempt.due`."""
        source = attempt.event.source
        self._pauses[source] = self._last[source] = attempt
        self._consumer.pause([TopicPartition(*source)])

    def last_attempt(self, event: Event) -> Attempt:
        return self._last[event.source] if self._has_failed(event) else Attempt(event)

    def any_failed(self, events: Iterable[Event]) -> bool:
        """Return whether one of the events was tried before, without success."""
        return bool(self._last) and any(map(self._has_failed, events))

    def _has_failed(self, event: Event) -> bool:
        last = self._last.get(event.source)
        return last is not None and last.event.offset == event.offset

    def resume_due(self) -> None:
        """Resume the partitions whose time has come, each at its event."""
        now = time.monotonic()
        for partition, attempt in list(self._pauses.items()):
            if attempt.due <= now:
                # Before it is resumed: a later event could be received in between.
                offsets.seek(self._consumer, [TopicPartition(*partition, attempt.event.offset)])
                self._consumer.resume([TopicPartition(*partition)])
                del self._pauses[partition]

    def seconds_left(self, limit: float) -> float:
        """Return the seconds until the next partition is due, at most `limit`."""
        now = time.monotonic()
        return max(0.0, min([limit, *(attempt.due - now for attempt in self._pauses.values())]))

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
            for event in filter(self._has_failed, events):
                del self._last[event.source]

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._pauses.values()))

    def __repr__(self) -> str:
        return f"PausedPartitions({list(self._pauses.values())})"

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._pauses
