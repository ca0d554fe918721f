"""Register event handlers by event type and topic, and call them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from itertools import groupby
from typing import Any, Generic, TypeVar, overload

from outbox_events.errors import ConfigurationError
from outbox_events.extras import extra
from outbox_events.receiving.event import Event
from outbox_events.receiving.strategy import Context

log = logging.getLogger("outbox_events.receiving")
Payload = TypeVar("Payload")
Handler = Callable[[Event, Context], None]
"""Applies one event. The strategy provides the context: the open database connection or Kafka transaction."""
BatchHandler = Callable[[Sequence[Event], Context], None]
"""Applies consecutive events of a batch together."""
TypedHandler = Callable[[Event[Payload], Context], None]
TypedBatchHandler = Callable[[Sequence[Event[Payload]], Context], None]


@dataclass(frozen=True, eq=False)
class _Registered(Generic[Context]):
    """A handler. `prepare` converts the value of an event, or is None."""

    apply: BatchHandler[Context]
    is_batch: bool = False
    prepare: Callable[[Event], Event] | None = None

    def call(self, events: Sequence[Event], context: Context) -> None:
        self.apply(events if self.prepare is None else [self.prepare(event) for event in events], context)


class Handlers(Generic[Context]):
    """Maps event types to handlers.

    handlers = Handlers[psycopg.Connection]()

    @handlers.on("book_lent", "book_returned")
    def update_rental(event: Event, connection: psycopg.Connection) -> None: ...

    @handlers.on("book_added", topic="library.book", type=Book)
    def add_book(event: Event[Book], connection: psycopg.Connection) -> None: ...

    @handlers.batch("book_read")
    def count(events: Sequence[Event], connection: psycopg.Connection) -> None: ...
    """

    def __init__(self) -> None:
        self._handlers: dict[tuple[str | None, str], _Registered[Context]] = {}
        self._unhandled = set[str]()
        self._other: _Registered[Context] | None = None
        self._duplicate: Handler[Context] | None = None

    @overload
    def on(
        self, *event_types: str, topic: str | None = None, type: None = None
    ) -> Callable[[Handler[Context]], Handler[Context]]: ...

    @overload
    def on(
        self, *event_types: str, topic: str | None = None, type: type[Payload]
    ) -> Callable[[TypedHandler[Payload, Context]], TypedHandler[Payload, Context]]: ...

    def on(self, *event_types: str, topic: str | None = None, type: type[Any] | None = None) -> Any:
        """Register a handler for these event types, for all topics or, with priority, for one topic.

        With `type`, the value of an event is an object of this class: a dataclass, a msgspec.Struct, or a model of
        pydantic. An event whose value does not match is an InvalidRecordError, so it is passed to the recoverer. Raises
        ConfigurationError if a type already has a handler, and MissingExtraError if msgspec is not installed.
        """

        def register(handler: Handler[Context]) -> Handler[Context]:
            refuse_async(handler)
            self._register(event_types, topic, _Registered(_one_by_one(handler), prepare=_conversion(type)))
            return handler

        return register

    @overload
    def batch(
        self, *event_types: str, topic: str | None = None, type: None = None
    ) -> Callable[[BatchHandler[Context]], BatchHandler[Context]]: ...

    @overload
    def batch(
        self, *event_types: str, topic: str | None = None, type: type[Payload]
    ) -> Callable[[TypedBatchHandler[Payload, Context]], TypedBatchHandler[Payload, Context]]: ...

    def batch(self, *event_types: str, topic: str | None = None, type: type[Any] | None = None) -> Any:
        """Register a handler that receives consecutive events of these types together, in the order of their offsets.

        The events are new events of one transaction, without an event of another handler between them. If the
        transaction fails, each event is applied separately, so the handler is called again with one event at a time.
        The other parameters and errors are those of `on`.
        """

        def register(handler: BatchHandler[Context]) -> BatchHandler[Context]:
            refuse_async(handler)
            self._register(event_types, topic, _Registered(handler, is_batch=True, prepare=_conversion(type)))
            return handler

        return register

    def otherwise(self, handler: Handler[Context]) -> Handler[Context]:
        """Register the handler for event types without their own handler. By default, their events are only counted."""
        refuse_async(handler)
        self._other = _Registered(_one_by_one(handler))
        return handler

    def on_duplicate(self, handler: Handler[Context]) -> Handler[Context]:
        """Register the handler for events that were already applied, for example to send the stored response again."""
        refuse_async(handler)
        self._duplicate = handler
        return handler

    def apply(self, events: Sequence[Event], context: Context) -> int:
        """Call the handlers in the order of the events. Return the number of events without a handler."""
        unhandled = 0
        for handler, run in self._runs(events):
            if handler is None:
                unhandled += len(run)
                self._report_unhandled(run)
            else:
                handler.call(run, context)
        return unhandled

    def handle_duplicate(self, event: Event, context: Context) -> None:
        """Call the handler for duplicates if one is registered."""
        if self._duplicate is not None:
            self._duplicate(event, context)

    def _register(self, event_types: Sequence[str], topic: str | None, handler: _Registered[Context]) -> None:
        for event_type in event_types:
            if (topic, event_type) in self._handlers:
                place = f" of topic {topic}" if topic else ""
                raise ConfigurationError(f"event type {event_type}{place} has two handlers")
            self._handlers[topic, event_type] = handler

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
        for event_type in {event.event_type for event in events} - self._unhandled:
            self._unhandled.add(event_type)
            log.info("events of type %s have no handler", event_type)


def _one_by_one(handler: Handler[Context]) -> BatchHandler[Context]:
    def apply(events: Sequence[Event], context: Context) -> None:
        for event in events:
            handler(event, context)

    return apply


def _conversion(kind: type[Any] | None) -> Callable[[Event], Event] | None:
    """Return the function that converts the value of an event to `kind`."""
    if kind is None:
        return None
    with extra():
        from outbox_events.receiving.typed_values import typed  # noqa: PLC0415 - an optional dependency
    return lambda event: typed(event, kind)


def refuse_async(function: Callable[..., Any]) -> None:
    """Raise ConfigurationError for a coroutine or generator function, because calling it would not run its body."""
    for called in (function, type(function).__call__):
        if iscoroutinefunction(called) or isgeneratorfunction(called) or isasyncgenfunction(called):
            message = f"the body of {getattr(function, '__qualname__', function)} would never run"
            hint = "define it with `def` and without yield; call asynchronous code with asyncio.run"
            raise ConfigurationError(message, hint)
