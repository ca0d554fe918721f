"""Metrics of a receiver for Prometheus.

metrics = ReceiverMetrics()
start_http_server(9100)
with Receiver(..., counters=Counters(hook=metrics.count, observe=metrics.observe)) as receiver:
    run(receiver, metrics, stop)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Event as StopEvent
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from outbox_events import Receiver

SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 600, 3600)
HISTOGRAMS = {
    "handler_seconds": ("Duration of a handler.", SECONDS),
    "transaction_seconds": ("Duration of a transaction, including its commit.", SECONDS),
    "transaction_events": ("Events of a transaction.", (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    "event_age_seconds": ("Time from the record's timestamp to the commit of its event.", SECONDS),
}


class ReceiverMetrics(Collector):
    """Counts and measures what a receiver does, and reports its lag. Create one per process and registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.lag: Mapping[tuple[str, int], int] = {}
        """The last result of `Receiver.lag()`."""
        self._events = Counter(
            "outbox_receiver_events", "What the receiver did, by name of the counter.", ["counter"], registry=registry
        )
        self._histograms = {
            name: Histogram(f"outbox_receiver_{name}", text, ["event_type"], buckets=buckets, registry=registry)
            for name, (text, buckets) in HISTOGRAMS.items()
        }
        registry.register(self)

    def count(self, name: str, number: int) -> None:
        """Add to a counter: the hook of `Counters`."""
        self._events.labels(name).inc(number)

    def observe(self, name: str, value: float, event_type: str) -> None:
        """Add to a histogram: the function `observe` of `Counters`. Later versions can have more measurements."""
        if name in self._histograms:
            self._histograms[name].labels(event_type).observe(value)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the lag. A gauge of its own would keep the partitions that were revoked."""
        family = GaugeMetricFamily("outbox_receiver_lag", "Records after the position.", labels=["topic", "partition"])
        for (topic, partition), records in self.lag.items():
            family.add_metric([topic, str(partition)], records)
        yield family


def run(receiver: Receiver[Any], metrics: ReceiverMetrics, stop: StopEvent) -> None:
    """Receive events until `stop` is set, and store the lag after each batch.

    Prometheus collects in a thread of its own, which must not call `lag()`: the receiver could close meanwhile.
    """
    while not stop.is_set():
        receiver.poll()
        metrics.lag = receiver.lag()
