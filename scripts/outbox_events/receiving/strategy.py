"""Define the interface of strategies, which commit the effects of events and the progress of the consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from confluent_kafka import Consumer, TopicPartition

from outbox_events.receiving.event import Event
from outbox_events.receiving.partition_states import Partition
from outbox_events.receiving.strategies.database import Database

Context = TypeVar("Context")


@dataclass(frozen=True)
class Work(Generic[Context]):
    """Events of one transaction, and the context for handlers, such as the database connection."""

    context: Context
    events: Sequence[Event]
    """Events that were not handled before, in the order of their offsets."""
    duplicates: Sequence[Event] = ()
    """Events that this or another process has already handled."""


class Strategy(Protocol[Context]):
    """Commits the effects of events with the delivery guarantee of the strategy."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the consumer that the strategy requires."""

    def bind(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """Accept the consumer and its settings, which include `group.id`, before it subscribes."""

    def assigned(self, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
        """Return the partitions with the offsets at which to start, or None to start at the committed offsets.

        For None, the receiver raises RefusedError if records after a committed offset were deleted.

        Events of the partitions are received only after this call. If the call raises an error with the reaction WAIT
        or TRANSIENT, it is repeated after a delay, without a limit. Any other error ends `run()`.
        """

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Release partitions. From now on, another process can handle their events. An exception ends `run()`."""

    def reached(self, ends: Mapping[Partition, int]) -> None:
        """Accept the ends of partitions, up to which all events were handled. Only markers can precede an end.

        A strategy that stores positions itself stores these, because retention can remove everything before an end.
        """

    def transaction(self, events: Sequence[Event]) -> AbstractContextManager[Work[Context]]:
        """Open a transaction for these events. Commit it at the end of the block, or roll it back after an error."""

    def check(self, context: Context) -> None:
        """Check the context after each call of a handler or recoverer, before it is passed to the next one.

        An exception stops the receiver or, if it is not a ReceiverStoppedError, is an error of the event.
        """

    def recovery(self, event: Event) -> AbstractContextManager[Context]:
        """Open a transaction in which a recoverer disposes of an event that could not be handled."""

    def close(self) -> None:
        """Release connections. The receiver calls this method after it has left the group."""


class BaseStrategy:
    """Base class of strategies that start at the committed offsets of the consumer group."""

    database: Database[Any] | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        return {}

    def bind(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """Check the database. Raises ConfigurationError if the result of `connect` cannot be used."""
        del consumer
        if self.database is not None:
            self.database.bind(settings)

    def assigned(self, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
        del partitions
        return None

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Do nothing, because nothing in memory belongs to the partitions."""

    def reached(self, ends: Mapping[Partition, int]) -> None:
        """Do nothing, because the receiver commits the ends."""

    def check(self, context: Any) -> None:  # noqa: ANN401 - the context of the strategy
        """Raise ReceiverStoppedError if a handler has ended the transaction, or has left a statement open."""
        if self.database is not None:
            self.database.check(context)

    def close(self) -> None:
        """Close the database connection."""
        if self.database is not None:
            self.database.close()
