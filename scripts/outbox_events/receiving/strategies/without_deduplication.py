"""Apply events at least once, without deduplication, in one database transaction per batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Generic

from outbox_events.receiving.event import Event
from outbox_events.receiving.strategies.database import Connected, Database
from outbox_events.receiving.strategy import BaseStrategy, Work


class WithoutDeduplication(BaseStrategy, Generic[Connected]):
    """Commits the effects and then the offsets. Use it for handlers with idempotent effects, such as upserts."""

    def __init__(self, connect: Callable[[], Connected]) -> None:
        """`connect` returns a psycopg Connection or a SQLAlchemy Session."""
        self.database: Database[Connected] = Database(connect)

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Connected]]:
        """Yield the connection and all events."""
        with self.database.transaction() as connection:
            yield Work(connection, events)

    def recovery(self, event: Event) -> AbstractContextManager[Connected]:
        """Open a transaction for a recoverer."""
        del event
        return self.database.transaction()
