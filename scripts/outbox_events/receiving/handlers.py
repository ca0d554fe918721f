"""Register event handlers by event type and topic, and call them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Generic, TypeVar

from outbox_events.errors import ConfigurationError
from outbox_events.extras import extra
from outbox_events.receiving.event import Event, Value
from outbox_events.receiving.function_bodies import require_body
from outbox_events.receiving.observed import Observe, handled
from outbox_events.receiving.strategy import Context

log = logging.getLogger("outbox_events.receiving")
Handler = Callable[[Event, Context], Awaitable[None] | None]
"""Applies one event. The strategy provides the context: the open database connection or Kafka transaction."""
Call = Callable[[Callable[[Any, Context], object], Any, Context], None]
"""Calls a function of the service with one or several events, and with the context."""
Registered = TypeVar("Registered", bound=Callable[..., object])
Result = TypeVar("Result", bound=Awaitable[None] | None)
"""None for a function that is defined with `def`, and a coroutine for one that is defined with `async def`."""


@dataclass(frozen=True, eq=False)
class _Registered(Generic[Context]):
    """A handler of one event or, if `is_batch` is set, of several events. `prepare` converts the value of an event."""

    function: Callable[[Any, Context], object]
    is_batch: bool = False
    prepare: Callable[[Event], Event] | None = None

    def call(self, events: Sequence[Event], context: Context) -> object:
        prepared = events if self.prepare is None else [self.prepare(event) for event in events]
        return self.function(prepared if self.is_batch else prepared[0], context)


class Handlers(Generic[Context]):
    """Maps event types to handlers.

    handlers = Handlers[psycopg.Connection]()

    @handlers.on("book_lent", "book_returned")
    def update_rental(event: Event, connection: psycopg.Connection) -> None: ...

    @handlers.on("book_added", topic="library.book", type=Book)
    def add_book(event: Event[Book], connection: psycopg.Connection) -> None: ...

    @handlers.batch("book_read")
    async def count(events: Sequence[Event], connection: psycopg.Connection) -> None: ...

    Handlers are defined with `def` or `async def`.
    """

    def __init__(self) -> None:
        self._handlers: dict[tuple[str | None, str], _Registered[Context]] = {}
        self._unhandled = set[tuple[str, str]]()
        self._other: _Registered[Context] | None = None
        self._duplicate: Handler[Context] | None = None

    def on(
        self, *event_types: str, topic: str | None = None, type: type[Value] | None = None
    ) -> Callable[[Callable[[Event[Value], Context], Result]], Callable[[Event[Value], Context], Result]]:
        """Register a handler for these event types, for all topics or, with priority, for one topic.

        With `type`, the value of an event is an object of this class: a dataclass, a msgspec.Struct, or a model of
        pydantic. An event whose value does not match is an InvalidRecordError, so it is passed to the recoverer. Raises
        ConfigurationError if a type already has a handler, and MissingExtraError if msgspec is not installed.
        """
        return partial(self._register, event_types, topic, type, False)

    def batch(
        self, *event_types: str, topic: str | None = None, type: type[Value] | None = None
    ) -> Callable[
        [Callable[[Sequence[Event[Value]], Context], Result]], Callable[[Sequence[Event[Value]], Context], Result]
    ]:
        """Register a handler that receives consecutive events of these types together, in the order of their offsets.

        The events are new events of one transaction, without an event of another handler between them. If the
        transaction fails, each event is applied separately, so the handler is called again with one event at a time.
        The other parameters and errors are those of `on`.
        """
        return partial(self._register, event_types, topic, type, True)

    def otherwise(self, handler: Callable[[Event, Context], Result]) -> Callable[[Event, Context], Result]:
        """Register the handler for event types without their own handler. By default, their events are only counted."""
        require_body(handler, can_be_async=True)
        self._other = _Registered(handler)
        return handler

    def on_duplicate(self, handler: Callable[[Event, Context], Result]) -> Callable[[Event, Context], Result]:
        """Register the handler for events that were already applied, for example to send the stored response again."""
        require_body(handler, can_be_async=True)
        self._duplicate = handler
        return handler

    @property
    def topics(self) -> set[str]:
        """Topics for which a handler is registered."""
        return {topic for topic, _ in self._handlers if topic is not None}

    def apply(
        self, events: Sequence[Event], context: Context, call: Call[Context], observe: Observe | None = None
    ) -> int:
        """Call the handlers in the order of the events. Return the number of events without a handler.

        `observe` receives the duration of each call.
        """
        unhandled = 0
        for handler, run in self._runs(events):
            if handler is None:
                unhandled += len(run)
                self._report_unhandled(run)
            else:
                with handled(run, observe):
                    call(handler.call, run, context)
        return unhandled

    def handle_duplicate(self, event: Event, context: Context, call: Call[Context]) -> None:
        """Call the handler for duplicates if one is registered."""
        if self._duplicate is not None:
            with handled([event], None):
                call(self._duplicate, event, context)

    def _register(
        self, event_types: Sequence[str], topic: str | None, kind: type[Any] | None, is_batch: bool, handler: Registered
    ) -> Registered:
        require_body(handler, can_be_async=True)
        if not event_types or not all(isinstance(name, str) for name in event_types):
            raise ConfigurationError(
                "a handler has no event types", 'write @handlers.on("TYPE") or @handlers.batch("TYPE")'
            )
        registered = _Registered[Context](handler, is_batch, _conversion(kind))
        for event_type in event_types:
            if (topic, event_type) in self._handlers:
                place = f" of topic {topic}" if topic else ""
                raise ConfigurationError(f"event type {event_type}{place} has two handlers")
            self._handlers[topic, event_type] = registered
        return handler

    def _handler_of(self, event: Event) -> _Registered[Context] | None:
        own = self._handlers.get((event.topic, event.event_type))
        return own or self._handlers.get((None, event.event_type), self._other)

    def _runs(self, events: Sequence[Event]) -> Iterator[tuple[_Registered[Context] | None, list[Event]]]:
        """Yield each handler with its events: consecutive events for a batch handler, otherwise one event."""
        for handler, group in groupby(events, key=self._handler_of):
            if handler is not None and not handler.is_batch:
                yield from ((handler, [event]) for event in group)
            else:
                yield handler, list(group)

    def _report_unhandled(self, events: Sequence[Event]) -> None:
        for topic, event_type in {(event.topic, event.event_type) for event in events} - self._unhandled:
            self._unhandled.add((topic, event_type))
            log.warning("events of type %s on topic %s have no handler and are skipped", event_type, topic)


def _conversion(kind: type[Any] | None) -> Callable[[Event], Event] | None:
    """Return the function that converts the value of an event to `kind`."""
    if kind is None:
        return None
    if not isinstance(kind, type):
        raise ConfigurationError(f"type={kind!r} is not a class")
    with extra():
        from outbox_events.receiving.typed_values import require_convertible, typed  # noqa: PLC0415 - optional
    require_convertible(kind)
    return lambda event: typed(event, kind)
