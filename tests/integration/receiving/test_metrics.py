"""docs/examples/metrics: counters, measurements and lag reach the metrics libraries. The modules pass type checks."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event as StopEvent
from typing import Any

import psycopg
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from tests.integration.receiving.service import Service

from outbox_events import Counters, Event, ProcessedEvents

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples" / "metrics"
COUNTS = {"received": 3, "handled": 2, "duplicates": 1}
LAG = 2
"""Number of records after the partition's position when the receiver stops."""


def receive(service: Service, metrics: Any, run: Callable[..., None]) -> None:  # noqa: ANN401 - of an example
    """Receive the first three of five events. The second event is a duplicate."""
    stop = StopEvent()

    @service.handlers.otherwise
    def apply(event: Event, connection: psycopg.Connection) -> None:
        service.write_effect(event, connection)
        if event.event_id == "b":
            stop.set()

    service.send(*(("k", event_id) for event_id in ("a", "a", "b", "c", "d")), partition=1)
    once = ProcessedEvents(service.connect, service.group)
    with service.receiver(
        once, batch_size=1, counters=Counters(hook=metrics.count, observe=metrics.observe)
    ) as receiver:
        run(receiver, metrics, stop)


def test_prometheus_shows_counters_and_lag(service: Service) -> None:
    example = runpy.run_path(str(EXAMPLES / "prometheus_metrics.py"))
    registry = CollectorRegistry()
    receive(service, example["ReceiverMetrics"](registry), example["run"])
    samples = {line for line in generate_latest(registry).decode().splitlines() if "_created" not in line}
    for name, number in COUNTS.items():
        assert f'outbox_receiver_events_total{{counter="{name}"}} {number}.0' in samples
    assert f'outbox_receiver_lag{{partition="1",topic="{service.topic}"}} {LAG}.0' in samples
    assert 'outbox_receiver_handler_seconds_count{event_type="Changed"} 2.0' in samples
    assert 'outbox_receiver_event_age_seconds_count{event_type="Changed"} 3.0' in samples
    assert 'outbox_receiver_transaction_events_sum{event_type=""} 3.0' in samples


def test_opentelemetry_shows_counters_and_lag(service: Service) -> None:
    example = runpy.run_path(str(EXAMPLES / "opentelemetry_metrics.py"))
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    receive(service, example["ReceiverMetrics"](provider.get_meter("test")), example["run"])
    points = read_points(reader)
    provider.shutdown()
    assert {point.attributes["counter"]: point.value for point in points["outbox.receiver.events"]} == COUNTS
    lag = {
        (point.attributes["topic"], point.attributes["partition"]): point.value
        for point in points["outbox.receiver.lag"]
    }
    assert lag[service.topic, 1] == LAG
    assert [(point.attributes["event_type"], point.count) for point in points["outbox.receiver.handler"]] == [
        ("Changed", 2)
    ]
    assert points["outbox.receiver.transaction_events"][0].sum == 3


def read_points(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    """Return the data points by name of the metric."""
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [
        metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
    ]
    return {metric.name: list(metric.data.data_points) for metric in metrics}


def test_the_examples_are_typed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), *map(str, EXAMPLES.glob("*.py"))]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert checked.returncode == 0, checked.stdout
