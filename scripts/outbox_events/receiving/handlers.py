"""Register event handlers by event type."""

from __future__ import annotations

import logging
from collections.abc import Callable
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Generic

from outbox_events.errors import ConfigurationError
from outbox_events.receiving.event import Event
from outbox_events.receiving.strategy import Context

log = logging.getLogger("outbox_events.receiving")
Handler = Callable[[Event, Context], None]
"""Applies one event. The strategy provides the context: the open database connection or Kafka transaction."""


class Handlers(Generic[Context]):
    """Maps event types to handlers.

    handlers = Handlers[psycopg.Connection]()

    @handlers.on("book_lent", "book_returned")
    def update_rental(event: Event, connection: psycopg.Connection) -> None: ...
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Handler[Context]] = {}
        self._unhandled = set[str]()
        self._other: Handler[Context] | None = None
        self._duplicate: Handler[Context] | None = None

    def on(self, *event_types: str) -> Callable[[Handler[Context]], Handler[Context]]:
        """Register a handler for these event types. Raises ConfigurationError if a type already has a handler."""

        def register(handler: Handler[Context]) -> Handler[Context]:
            refuse_async(handler)
            for event_type in event_types:
                if event_type in self._handlers:
                    raise ConfigurationError(f"event type {event_type} has two handlers")
                self._handlers[event_type] = handler
            return handler

        return register

    def otherwise(self, handler: Handler[Context]) -> Handler[Context]:
        """Register the handler for event types without their own handler. By default, their events are only counted."""
        refuse_async(handler)
        self._other = handler
        return handler

    def on_duplicate(self, handler: Handler[Context]) -> Handler[Context]:
        """Register the handler for events that were already applied, for example to send the stored response again."""
        refuse_async(handler)
        self._duplicate = handler
        return handler

    def handle(self, event: Event, context: Context) -> bool:
        """Call the handler of the event. Return False if there is no handler for its type."""
        handler = self._handlers.get(event.event_type, self._other)
        if handler is not None:
            handler(event, context)
        elif event.event_type not in self._unhandled:
            self._unhandled.add(event.event_type)
            log.info("events of type %s have no handler", event.event_type)
        return handler is not None

    def handle_duplicate(self, event: Event, context: Context) -> None:
        """Call the handler for duplicates if one is registered."""
        if self._duplicate is not None:
            self._duplicate(event, context)


def refuse_async(function: Callable[..., Any]) -> None:
    """Raise ConfigurationError for a coroutine or generator function, because calling it would not run its body."""
    for called in (function, type(function).__call__):
        if iscoroutinefunction(called) or isgeneratorfunction(called) or isasyncgenfunction(called):
            message = f"the body of {getattr(function, '__qualname__', function)} would never run"
            hint = "define it with `def` and without yield; call asynchronous code with asyncio.run"
            raise ConfigurationError(message, hint)
