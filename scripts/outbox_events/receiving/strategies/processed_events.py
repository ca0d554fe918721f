"""Strategy with a table of processed events: each event once, in the transaction of its effects."""

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
    """Inserts the ids of the events first, then calls the handlers with the connection, then commits.

    Handlers write through the connection, also outbox rows (`emit`), and must not commit. An event that is received
    again, or that was produced twice with one id, has no second effect.
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

        `group` separates the ids of services in the table, and is the group.id of the Receiver unless it is given.
        """
        self.database = Database(connect)
        self.group = group or ""
        self.table = table
        self.identify = identify

    def bind(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """Use the consumer's group, unless another was given."""
        del consumer
        self.group = self.group or str(settings["group.id"])

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Connected]]:
        """Claim the events; yield the connection and the events that are new."""
        ids = [self.identify(event) for event in events]
        with self.database.transaction() as connection:
            new = processed_table.claim(connection, self.group, set(ids), table=self.table)  # type: ignore[arg-type]
            to_handle, duplicates = list[Event](), list[Event]()
            for event, event_id in zip(events, ids, strict=True):
                (to_handle if event_id in new else duplicates).append(event)
                new.discard(event_id)  # a batch can contain an event twice
            yield Work(connection, to_handle, duplicates)

    def recovery(self, event: Event) -> AbstractContextManager[Connected]:
        """Open a transaction without a claim, so that the event can be replayed with its id."""
        del event
        return self.database.transaction()

    def close(self) -> None:
        """Close the database connection."""
        self.database.close()
