"""Apply events in tests without a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Generic

from outbox_events.receiving.event import Event, Identify, header_id
from outbox_events.receiving.strategy import BaseStrategy, Context, Work


class InMemory(BaseStrategy, Generic[Context]):
    """Passes `context` to the handlers, and keeps the ids of applied events in memory as ProcessedEvents in its table.

    After a failed attempt, the ids of its events are removed, but the effects of its handlers remain.
    """

    def __init__(self, context: Context, *, identify: Identify = header_id) -> None:
        self.ids: set[str] = set()
        self._context = context
        self._identify = identify

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Context]]:
        """Yield the context, and the events whose ids are new."""
        known, new, duplicates = set(self.ids), list[Event](), list[Event]()
        for event in events:
            event_id = self._identify(event)
            (duplicates if event_id in known else new).append(event)
            known.add(event_id)
        yield Work(self._context, new, duplicates)
        self.ids = known

    def recovery(self, event: Event) -> AbstractContextManager[Context]:
        """Pass the context to a recoverer."""
        del event
        return nullcontext(self._context)
