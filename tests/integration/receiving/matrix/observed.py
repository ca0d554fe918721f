"""Strategy whose steps a test can observe, and at which the test can make the process fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from outbox_events import Event, Strategy, Work

Step = Callable[[Sequence[Event]], None]


def nothing(_events: Sequence[Event]) -> None:
    """Let the transaction continue."""


class Observed:
    """Delegates to a strategy, and records the partitions and events that it receives."""

    def __init__(self, strategy: Strategy[Any], *, before_commit: Step = nothing, after_commit: Step = nothing) -> None:
        self.partitions: set[tuple[str, int]] = set()
        """Partitions that have been assigned at any time."""
        self.settled: set[str] = set()
        """Ids of events that have been applied, recognized as duplicates, or recovered."""
        self.starts: dict[tuple[str, int], int] = {}
        """Stored position at which each partition was last assigned."""
        self._strategy = strategy
        self._before_commit = before_commit
        self._after_commit = after_commit

    @property
    def settings(self) -> Mapping[str, Any]:
        return self._strategy.settings

    def bind(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        self._strategy.bind(consumer, settings)

    def assigned(self, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
        starts = self._strategy.assigned(partitions)
        # Recorded afterwards, because until then the strategy can still read what another member has saved.
        self.partitions |= {(partition.topic, partition.partition) for partition in partitions}
        self.starts |= {(start.topic, start.partition): start.offset for start in starts or []}
        return starts

    def revoked(self, partitions: list[TopicPartition]) -> None:
        self._strategy.revoked(partitions)

    def reached(self, ends: Mapping[tuple[str, int], int]) -> None:
        self._strategy.reached(ends)

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Any]]:
        with self._strategy.transaction(events) as work:
            yield work
            self._before_commit(events)
        self._after_commit(events)
        self.settled |= {event.event_id for event in events}

    def check(self, context: Any) -> None:  # noqa: ANN401
        self._strategy.check(context)

    @contextmanager
    def recovery(self, event: Event) -> Iterator[Any]:
        with self._strategy.recovery(event) as context:
            yield context
        self.settled.add(event.event_id)

    def close(self) -> None:
        self._strategy.close()
