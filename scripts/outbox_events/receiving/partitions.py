"""Track partitions that the strategy has not accepted yet, and partitions that are paused until a retry."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from outbox_events.kafka import offsets
from outbox_events.limited_calls import ClientStuckError
from outbox_events.receiving.event import Event
from outbox_events.receiving.partition_states import Partition, PartitionStates
from outbox_events.receiving.recoverers import describe, stopped_error
from outbox_events.receiving.retries import Reaction, Retries
from outbox_events.receiving.strategy import Strategy
from outbox_events.waiting import Deadline

LEAVE_S = 10.0
DROPPED_RECORDS = 1000  # per call
log = logging.getLogger("outbox_events.receiving")


class Assignments:
    """Assigns partitions in the client after the strategy has accepted them, which can take several attempts.

    Until then, the client does not fetch from them, and the consumer stays in the group as long as it polls.
    """

    def __init__(
        self, consumer: Consumer, settings: Mapping[str, Any], strategy: Strategy[Any], retries: Retries
    ) -> None:
        self._is_incremental = (
            "cooperative" in str(settings.get("partition.assignment.strategy", ""))
            or settings.get("group.protocol") == "consumer"
        )
        self._consumer = consumer
        self._settings = settings
        self._states: PartitionStates | None = None
        self._strategy = strategy
        self._retries = retries
        self.has_joined = False
        self.owned: set[Partition] = set()
        self.waiting: dict[Partition, TopicPartition] = {}
        self._failures = 0
        self._due = 0.0

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign partitions during a rebalance, or postpone their assignment after an error."""
        added = {(partition.topic, partition.partition): partition for partition in partitions}
        self.has_joined = True
        self.owned |= added.keys()
        self.waiting |= added
        self._failures, self._due = 0, 0.0
        with suppress(Exception):  # the next poll raises the error; here, it would make the client lose polled records
            self.assign_due()
        if self.waiting:
            self._assign([])  # otherwise the client would assign the partitions

    def remove(self, partitions: Sequence[TopicPartition]) -> None:
        """Remove partitions while they are being revoked."""
        log.info("revoked: %s", _names(partitions))
        self.owned -= {(place.topic, place.partition) for place in partitions}
        known = [place for place in partitions if not self.waiting.pop((place.topic, place.partition), None)]
        if self._is_incremental and len(known) < len(partitions):
            self._consumer.incremental_unassign(known)  # otherwise the client fails, because some are not assigned

    def assign_due(self) -> None:
        """Assign the waiting partitions if the delay has passed. Raises the strategy's errors, except for outages."""
        if not self.waiting or time.monotonic() < self._due:
            return
        partitions = list(self.waiting.values())
        try:
            starts = self._strategy.assigned(partitions)
            if starts is None:
                self._states = self._states or PartitionStates(self._consumer, self._settings)
                starts = self._states.committed_starts(partitions)
        except ClientStuckError:
            raise
        except Exception as error:
            reaction = self._retries.reaction_to(error)
            if reaction is Reaction.STOP:
                raise stopped_error("partitions cannot be assigned", error) from error
            if reaction not in (Reaction.WAIT, Reaction.TRANSIENT) and not isinstance(error, TimeoutError):
                raise
            self._failures += 1
            self._due = time.monotonic() + self._retries.delay_s(self._failures)
            log.warning("waiting, because partitions cannot be assigned: %s", describe(error))
        else:
            self._assign(starts)
            self.waiting.clear()
            log.info("assigned: %s", _names(partitions))

    def leave(self) -> None:
        """Leave the group, and poll until all partitions are revoked, for at most LEAVE_S.

        A rebalance that is still in progress in `Consumer.close` can block the process indefinitely
        (https://github.com/confluentinc/librdkafka/issues/4884).
        """
        self._consumer.unsubscribe()
        self._consumer.consume(DROPPED_RECORDS, timeout=0)  # run a pending assignment callback
        deadline = Deadline(LEAVE_S)
        while self.owned and deadline.seconds_left:
            self._consumer.consume(DROPPED_RECORDS, timeout=0.1)

    def seconds_left(self, limit: float) -> float:
        """Return the number of seconds until the next attempt to assign partitions, or `limit` if that is less."""
        return max(0.0, min(limit, self._due - time.monotonic())) if self.waiting else limit

    def _assign(self, partitions: list[TopicPartition]) -> None:
        (self._consumer.incremental_assign if self._is_incremental else self._consumer.assign)(partitions)


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{partition.topic}/{partition.partition}" for partition in partitions)


@dataclass(frozen=True)
class Attempt:
    """Last attempt to apply an event whose partition is paused. `error` is None before the first attempt."""

    event: Event
    error: Exception | None = field(default=None, repr=False)
    attempts: int = 0
    """Number of failed attempts, not counting outages."""
    failures: int = 0
    """Number of failed attempts, including outages. This number determines the delay."""
    due: float = 0.0
    """Time, in terms of time.monotonic(), after which the partition can be resumed."""
    is_recovering: bool = False
    """Whether all attempts are used up and the recoverer has failed."""


class PausedPartitions:
    """Pauses the partitions of failed events, and resumes each partition at its failed event.

    Later events in the partition wait until then, so the events of each key are applied in order.
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
        """Return whether an earlier attempt to apply one of the events failed."""
        return bool(self._last) and any(map(self._has_failed, events))

    def _has_failed(self, event: Event) -> bool:
        last = self._last.get(event.source)
        return last is not None and last.event.offset == event.offset

    def resume_due(self) -> None:
        """Resume the partitions whose delay has passed, each at its failed event."""
        now = time.monotonic()
        for partition, attempt in list(self._pauses.items()):
            if attempt.due <= now:
                # Seek before resuming, because otherwise a later event could be received first.
                offsets.seek(self._consumer, [TopicPartition(*partition, attempt.event.offset)])
                self._consumer.resume([TopicPartition(*partition)])
                del self._pauses[partition]

    def seconds_left(self, limit: float) -> float:
        """Return the number of seconds until the next partition can be resumed, or `limit` if that is less."""
        now = time.monotonic()
        return max(0.0, min([limit, *(attempt.due - now for attempt in self._pauses.values())]))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard the pauses and attempts of partitions that were assigned or revoked."""
        for partition in partitions:
            if self._pauses.pop((partition.topic, partition.partition), None):
                # Otherwise the client would still pause the partition after it is assigned again.
                self._consumer.resume([TopicPartition(partition.topic, partition.partition)])
            self._last.pop((partition.topic, partition.partition), None)

    def succeeded(self, events: Iterable[Event]) -> None:
        """Discard the failures of events that were handled."""
        if self._last:
            for event in filter(self._has_failed, events):
                del self._last[event.source]

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._pauses.values()))

    def __repr__(self) -> str:
        return f"PausedPartitions({list(self._pauses.values())})"

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._pauses
