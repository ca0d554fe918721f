"""Metrics of a receiver for OpenTelemetry.

metrics = ReceiverMetrics(get_meter("rental"))
with Receiver(..., counters=Counters(hook=metrics.count, observe=metrics.observe)) as receiver:
    run(receiver, metrics, stop)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Event as StopEvent
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from outbox_events import Receiver

UNITS = {
    "handler_seconds": "s",
    "transaction_seconds": "s",
    "transaction_events": "{event}",
    "event_age_seconds": "s",
}


class ReceiverMetrics:
    """Counts and measures what a receiver does, and reports its lag."""

    def __init__(self, meter: Meter) -> None:
        self.lag: Mapping[tuple[str, int], int] = {}
        """The last result of `Receiver.lag()`."""
        self._events = meter.create_counter(
            "outbox.receiver.events", description="What the receiver did, by name of the counter."
        )
        self._histograms = {
            name: meter.create_histogram(f"outbox.receiver.{name.removesuffix('_seconds')}", unit)
            for name, unit in UNITS.items()
        }
        meter.create_observable_gauge(
            "outbox.receiver.lag", [self._observe], unit="{record}", description="Records after the position."
        )

    def count(self, name: str, number: int) -> None:
        """Add to a counter: the hook of `Counters`."""
        self._events.add(number, {"counter": name})

    def observe(self, name: str, value: float, event_type: str) -> None:
        """Add to a histogram: the function `observe` of `Counters`. Later versions can have more measurements."""
        if name in self._histograms:
            self._histograms[name].record(value, {"event_type": event_type})

    def _observe(self, _options: CallbackOptions) -> Iterator[Observation]:
        for (topic, partition), records in self.lag.items():
            yield Observation(records, {"topic": topic, "partition": partition})


def run(receiver: Receiver[Any], metrics: ReceiverMetrics, stop: StopEvent) -> None:
    """Receive events until `stop` is set, and store the lag after each batch.

    OpenTelemetry collects in a thread of its own, which must not call `lag()`: the receiver could close meanwhile.
    """
    while not stop.is_set():
        receiver.poll()
        metrics.lag = receiver.lag()
