"""Collect the events that a service emits, instead of inserting them into an outbox table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from outbox_events.sending.emit import collectors
from outbox_events.sending.event import OutboxEvent


class EmittedEvents(list[OutboxEvent]):
    """Events that were emitted, in the order of the calls."""

    def of_type(self, *event_types: str) -> list[OutboxEvent]:
        """Return the events of these types."""
        return [emitted for emitted in self if emitted.event_type in event_types]


@contextmanager
def collect_events() -> Iterator[EmittedEvents]:
    """Collect the events of `emit`, `emit_many` and `emit_async` in all threads, instead of inserting them.

    The events are validated as always, but the connection is not used and can be any object. A rollback of the service
    does not remove events.
    """
    emitted = EmittedEvents()
    collectors.append(emitted)
    try:
        yield emitted
    finally:
        collectors.pop()


@contextmanager
def removed_after_error() -> Iterator[None]:
    """Remove the events that the block emitted if it raises an exception, as a rollback does with outbox rows."""
    counts = [len(collector) for collector in collectors]
    try:
        yield
    except BaseException:
        for collector, count in zip(collectors, counts, strict=True):
            del collector[count:]
        raise
