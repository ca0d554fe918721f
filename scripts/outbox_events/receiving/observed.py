"""Run handlers in spans, and report durations and sizes to a function of the service."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from outbox_events.receiving.event import Event
from outbox_events.tracing.tracer import Tracer, current_tracer

log = logging.getLogger("outbox_events.receiving")
Observe = Callable[[str, float, str], None]
"""Called with the name of a measurement, its value, and the event type, or '' for a whole transaction."""


def handled(events: Sequence[Event], observe: Observe | None) -> AbstractContextManager[None]:
    """Run a handler of these events in a span, and report its duration as `handler_seconds`."""
    tracer = current_tracer()
    return nullcontext() if tracer is None and observe is None else _handled(events, observe, tracer)


@contextmanager
def _handled(events: Sequence[Event], observe: Observe | None, tracer: Tracer | None) -> Iterator[None]:
    start, first = time.monotonic(), events[0]
    parents = [event.headers for event in events]
    try:
        with tracer.processing(first.topic, parents, _attributes(events)) if tracer else nullcontext():
            yield
    finally:
        report(observe, "handler_seconds", time.monotonic() - start, first.event_type)


def committed(events: Sequence[Event], start: float, observe: Observe | None) -> None:
    """Report the duration and size of a transaction, and the age of each event. `start` is a time.monotonic()."""
    if observe is not None:
        report(observe, "transaction_seconds", time.monotonic() - start)
        report(observe, "transaction_events", len(events))
        for event in events:
            if event.timestamp_ms > 0:  # otherwise the record has no timestamp
                age = time.time() - event.timestamp_ms / 1000
                report(observe, "event_age_seconds", max(0.0, age), event.event_type)


def report(observe: Observe | None, name: str, value: float, event_type: str = "") -> None:
    """Call the function. If it fails, log its exception, because the events are not the cause."""
    if observe is not None:
        try:
            observe(name, value, event_type)
        except Exception:
            log.exception("the function that observes %s failed", name)


def _attributes(events: Sequence[Event]) -> dict[str, str | int]:
    """Return attributes of OpenTelemetry's semantic conventions for messaging."""
    first = events[0]
    common: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.destination.name": first.topic,
    }
    if len(events) > 1:
        return {**common, "messaging.batch.message_count": len(events)}
    return {
        **common,
        "messaging.destination.partition.id": str(first.partition),
        "messaging.kafka.offset": first.offset,
        "messaging.message.id": first.event_id,
    }
