"""Apply each event once with a table of processed events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic

from confluent_kafka import Consumer

from outbox_events.receiving.event import Event, Identify, header_id
from outbox_events.receiving.strategies import processed_table
from outbox_events.receiving.strategies.database import Connected, Database
from outbox_events.receiving.strategies.processed_table import DEFAULT_TABLE
from outbox_events.receiving.strategy import ConsumerOffsets, Work


class ProcessedEvents(ConsumerOffsets, Generic[Connected]):
    """Inserts the ids of the events, calls the handlers with the connection, and commits.

    Handlers write through the connection, including outbox rows (`emit`), and must not commit. An event has no further
    effect if it is received again or was produced twice with the same id.
    """

    def __init__(
        self,
        connect: Callable[[], Connected],
        group: str | None = None,
        *,
        table: str = DEFAULT_TABLE,
        identify: Identify = header_id,
    ) -> None:
        """`connect` returns a psycopg Connection or a SQLAlchemy Session.

        `group` separates the ids of services in the table. The default is the group.id of the Receiver.
        """
        self.database = Database(connect)
        self.group = group or ""
        self.table = table
        self.identify = identify

    def bind(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """Use the group of the consumer unless a group was passed."""
        del consumer
        self.database.bind(settings)
        self.group = self.group or str(settings["group.id"])

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Connected]]:
        """Claim the events, and yield the connection and the new events."""
        ids = [self.identify(event) for event in events]
        with self.database.transaction() as connection:
            new = processed_table.claim(connection, self.group, set(ids), table=self.table)  # type: ignore[arg-type]
            to_handle, duplicates = list[Event](), list[Event]()
            for event, event_id in zip(events, ids, strict=True):
                (to_handle if event_id in new else duplicates).append(event)
                new.discard(event_id)  # a batch can contain an event twice
            yield Work(connection, to_handle, duplicates)

    def recovery(self, event: Event) -> AbstractContextManager[Connected]:
        """Open a transaction without claiming the event, so that it can be replayed with the same id."""
        del event
        return self.database.transaction()

    def close(self) -> None:
        """Close the database connection."""
        self.database.close()
