"""Interface of a strategy: how the effects of an event and the progress of the consumer are committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from confluent_kafka import Consumer, TopicPartition

from outbox_events.receiving.event import Event

Context = TypeVar("Context")


@dataclass(frozen=True)
class Work(Generic[Context]):
    """Events of one transaction, and what handlers need for their effects, such as the database connection."""

    context: Context
    events: Sequence[Event]
    """Events that were not handled before, in the order of their offsets."""
    duplicates: Sequence[Event] = ()
    """Events that were handled before, by this or another process."""


class Strategy(Protocol[Context]):
    """Commits the effects of events so that each event has the effects that the strategy promises."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the consumer that the strategy requires."""

    def bind(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """Accept the consumer and its settings, which include `group.id`, before it subscribes."""

    def assigned(self, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
        """Return the partitions with the offsets at which to start; None for the group's committed offsets.

        No event of the partitions is received before. After an exception that the retries take for an outage, it is
        called again; another one ends `run()`.
        """

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Give up partitions, whose events another process may handle from now on. An exception ends `run()`."""

    def transaction(self, events: Sequence[Event]) -> AbstractContextManager[Work[Context]]:
        """Open a transaction for these events. It commits at the end of the block, and rolls back after an error."""

    def recovery(self, event: Event) -> AbstractContextManager[Context]:
        """Open a transaction in which a recoverer disposes of an event that could not be handled."""

    def close(self) -> None:
        """Release connections. The receiver calls it after it has left the group."""


class ConsumerOffsets:
    """Base of strategies that leave positions to the consumer group."""

    @property
    def settings(self) -> Mapping[str, Any]:
        return {}

    def bind(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """Positions are committed by the receiver."""

    def assigned(self, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
        del partitions
        return None

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Nothing is kept per partition."""

    def close(self) -> None:
        """Nothing is open."""
