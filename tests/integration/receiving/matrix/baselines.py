"""Two ways of receiving that services often use, each with a weakness: offset first, and id of the event last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition

from outbox_events import Event, WithoutDeduplication, Work, claim, header_id

SEEN = "select event_id from public.processed_event where consumer_group = %s and event_id = any(%s)"


class AppliedMeanwhileError(Exception):
    """Another process has applied the event since this one looked."""


class OffsetFirst(WithoutDeduplication[psycopg.Connection]):
    """Commits the offset, then applies the event, so that the event is applied at most once."""

    _consumer: Consumer

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"enable.auto.commit": False}

    def bind(self, consumer: Consumer, settings: Mapping[str, Any]) -> None:
        del settings
        self._consumer = consumer

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[psycopg.Connection]]:
        ends = {event.source: event.offset + 1 for event in events}
        self._consumer.commit(
            offsets=[TopicPartition(*source, end) for source, end in ends.items()], asynchronous=False
        )
        with super().transaction(events) as work:
            yield work


class InsertLast(WithoutDeduplication[psycopg.Connection]):
    """Looks up the id first, calls the handler, and inserts the id at the end of the transaction."""

    def __init__(self, connect: Callable[[], psycopg.Connection], group: str) -> None:
        super().__init__(connect)
        self._group = group

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[psycopg.Connection]]:
        with super().transaction(events) as work:
            ids = [header_id(event) for event in events]
            seen = {row[0] for row in work.context.execute(SEEN, [self._group, ids])}
            new = [event for event in events if event.event_id not in seen]
            yield Work(work.context, new, [event for event in events if event.event_id in seen])
            if len(claim(work.context, self._group, {event.event_id for event in new})) < len(new):
                raise AppliedMeanwhileError
