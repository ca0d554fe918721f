"""Metrics of a receiver for Prometheus.

metrics = ReceiverMetrics()
start_http_server(9100)
with Receiver(..., counters=Counters(hook=metrics.count)) as receiver:
    run(receiver, metrics, stop)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Event as StopEvent
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from outbox_events import Receiver


class ReceiverMetrics(Collector):
    """Counts what a receiver does, and reports its lag. Create one per process and registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.lag: Mapping[tuple[str, int], int] = {}
        """The last result of `Receiver.lag()`."""
        self._events = Counter(
            "outbox_receiver_events", "What the receiver did, by name of the counter.", ["counter"], registry=registry
        )
        registry.register(self)

    def count(self, name: str, number: int) -> None:
        """Add to a counter: the hook of `Counters`."""
        self._events.labels(name).inc(number)

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
