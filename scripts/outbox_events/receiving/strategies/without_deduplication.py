"""Apply events at least once, without deduplication, in one database transaction per batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic

from confluent_kafka import Consumer

from outbox_events.receiving.event import Event
from outbox_events.receiving.strategies.database import Connected, Database
from outbox_events.receiving.strategy import ConsumerOffsets, Work


class WithoutDeduplication(ConsumerOffsets, Generic[Connected]):
    """Commits the effects and then the offsets. Use it for handlers with idempotent effects, such as upserts."""

    def __init__(self, connect: Callable[[], Connected]) -> None:
        """`connect` returns a psycopg Connection or a SQLAlchemy Session."""
        self.database = Database(connect)

    def bind(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """Limit the time for which a suspended process can hold locks."""
        del consumer
        self.database.bind(settings)

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Connected]]:
        """Yield the connection and all events."""
        with self.database.transaction() as connection:
            yield Work(connection, events)

    def recovery(self, event: Event) -> AbstractContextManager[Connected]:
        """Open a transaction for a recoverer."""
        del event
        return self.database.transaction()

    def close(self) -> None:
        """Close the database connection."""
        self.database.close()
