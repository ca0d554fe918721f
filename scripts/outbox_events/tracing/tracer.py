"""Define the tracer of the process, which provides the trace headers of events and runs handlers in spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from outbox_events.kafka.record import Record


class Tracer(Protocol):
    """Connects the library to a tracing system."""

    def headers(self) -> Mapping[str, str]:
        """Return the headers of the current span for an event that is sent, or an empty mapping."""

    def processing(
        self, topic: str, parents: Sequence[Mapping[str, str]], attributes: Mapping[str, str | int]
    ) -> AbstractContextManager[None]:
        """Run the handler of events in a span. `parents` contains the headers of each event."""


_tracer: Tracer | None = None


def use_tracer(tracer: Tracer | None) -> None:
    """Use an OpenTelemetryTracer or your own tracer in the whole process. None, the default, ends tracing."""
    global _tracer  # noqa: PLW0603 - one tracer per process, as in OpenTelemetry
    _tracer = tracer


def current_tracer() -> Tracer | None:
    """Return the tracer of the process."""
    return _tracer


def trace_headers() -> dict[str, str]:
    """Return the headers that continue the current trace. `emit` adds them to its events."""
    return {} if _tracer is None else dict(_tracer.headers())


def traced(record: Record) -> Record:
    """Return the record with the headers that continue the current trace, unless it already has a `traceparent`."""
    if "traceparent" in dict(record.headers):
        return record
    added = tuple((name, value.encode()) for name, value in trace_headers().items())
    return replace(record, headers=(*record.headers, *added))
