"""Apply each event once with a table of processed events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, Generic

from confluent_kafka import Consumer, TopicPartition

from outbox_events.receiving.event import Event, Identify, header_id
from outbox_events.receiving.event_ids import EventIds
from outbox_events.receiving.recoverers import describe
from outbox_events.receiving.strategies import processed_table
from outbox_events.receiving.strategies.database import Connected, Database
from outbox_events.receiving.strategies.ended_transactions import TransactionEndedError
from outbox_events.receiving.strategies.processed_retention import check_retention
from outbox_events.receiving.strategies.processed_table import DEFAULT_TABLE
from outbox_events.receiving.strategy import BaseStrategy, Work

log = logging.getLogger("outbox_events.receiving")


class ProcessedEvents(BaseStrategy, Generic[Connected]):
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
        keep: timedelta | None = None,
    ) -> None:
        """`connect` returns a psycopg Connection or a SQLAlchemy Session.

        `group` separates the ids of services in the table. The default is the group.id of the Receiver. `identify`
        returns the id of an event. Unless this id is a UUID in the header `event_id`, or a position, it identifies
        events of one topic. `keep` is the time after which `expire` deletes ids. The receiver checks it with
        `check_retention` when topics are assigned.
        """
        self.database: Database[Connected] = Database(connect)
        self.group = self._given_group = group or ""
        self.table = table
        self.ids = EventIds(identify)
        self._keep = keep
        self._settings: Mapping[str, Any] = {}
        self._checked_topics = set[str]()

    def bind(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        """Use the consumer's group, unless a group was passed, and check the database."""
        super().bind(consumer, settings)
        self.group = self._given_group or str(settings["group.id"])
        self._settings = settings

    def assigned(self, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
        """Raise ConfigurationError if ids of a topic's events are deleted too early."""
        topics = {place.topic for place in partitions} - self._checked_topics
        if self._keep is not None and topics:
            check_retention(self._settings, sorted(topics), self._keep)
            self._checked_topics |= topics
        return super().assigned(partitions)

    def id_of(self, event: Event) -> str:
        """Return the stored id of an event, for example for `processed_table.store_response`."""
        return self.ids.of([event])[0]

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Connected]]:
        """Claim the events, and yield the connection and the new events."""
        ids, claimed = self.ids.of(events), set[str]()
        try:
            with self.database.transaction() as connection:
                claimed = processed_table.claim(connection, self.group, set(ids), table=self.table)  # type: ignore[arg-type]
                new, to_handle, duplicates = set(claimed), list[Event](), list[Event]()
                for event, event_id in zip(events, ids, strict=True):
                    (to_handle if event_id in new else duplicates).append(event)
                    new.discard(event_id)  # a batch can contain an event twice
                yield Work(connection, to_handle, duplicates)
        except TransactionEndedError:
            self._unclaim(claimed)  # a handler might have committed the ids of events that were not applied
            raise

    def recovery(self, event: Event) -> AbstractContextManager[Connected]:
        """Open a transaction without claiming the event, so that it can be replayed with the same id."""
        del event
        return self.database.transaction()

    def _unclaim(self, ids: set[str]) -> None:
        try:
            with self.database.transaction() as connection:
                processed_table.unclaim(connection, self.group, ids, table=self.table)  # type: ignore[arg-type]
        except Exception as error:
            message = "before the restart, delete the ids of unapplied events from %s: group %s, ids %s (%s)"
            log.critical(message, self.table, self.group, sorted(ids), describe(error))
