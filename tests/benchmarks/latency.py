#!/usr/bin/env python3
"""Time from the commit of an event to a read_committed consumer, for OutboxRouter and EventRouter.

Settings: ROUNDS, SECONDS (per rate and round), TRY (additional OutboxRouter settings, see variants.router_variants).
See docs/performance-connector.md, "From commit to consumer".
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from typing import Any

from tests.benchmarks import backlog, variants
from tests.benchmarks.benchmark_stack import (
    PARTITIONS,
    BenchmarkStack,
    benchmark_stack,
    print_progress,
    worker_without_exactly_once,
)
from tests.benchmarks.latency_reader import READY, read
from tests.benchmarks.latency_writer import Written, write
from tests.benchmarks.report import Bound, bound_table, document, machine, markdown, publish
from tests.benchmarks.variants import Variant

from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect.client import ConnectClient
from outbox_kit.kafka.client import client_settings

ROUNDS = int(os.environ.get("ROUNDS", "3"))
SECONDS = float(os.environ.get("SECONDS", "10"))
RATES = (200, 1000)
WARM_UP_SECONDS = 3.0
# For each rate of the warm-up round, in which the JVM still runs interpreted code.
FIRST_SECONDS = min(SECONDS, 5.0)
ARRIVE_SECONDS = 60
VARIANTS: dict[str, Variant] = {
    "router": variants.outbox_router,
    "eventrouter": variants.event_router,
    "eventrouter_defaults": variants.event_router_defaults,
    **variants.router_variants(os.environ.get("TRY", "")),
}
LABELS = {
    "router": "OutboxRouter",
    "eventrouter": "EventRouter",
    "eventrouter_defaults": "EventRouter, Debezium's defaults",
}
BOUNDS = (("eventrouter", 1.0, 1.0), ("eventrouter_defaults", 0.2, 0.2))
BOUND_RATE = 200
SPAWN = multiprocessing.get_context("spawn")  # librdkafka does not support fork


@dataclass(frozen=True, order=True)
class Cell:
    """A variant at one rate, with or without exactly-once support."""

    rate: int
    exactly_once: bool
    variant: str

    def __str__(self) -> str:
        return f"{self.variant}_{self.rate}{self.suffix}"

    @property
    def suffix(self) -> str:
        """Return the suffix of the names of figures, which is empty with exactly-once support."""
        return "" if self.exactly_once else "_without_eos"


@dataclass
class Samples:
    """Latencies of one cell by round, and the delays of its writer, in milliseconds."""

    rounds: list[list[float]] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)

    @property
    def all(self) -> list[float]:
        return sorted(value for item in self.rounds for value in item)

    def percentiles(self, share: float) -> list[float]:
        """Return the percentile of each round."""
        return [percentile(sorted(item), share) for item in self.rounds]

    def add(self, written: list[Written], arrived: dict[str, int]) -> None:
        self.rounds.append([(arrived[entry.event] - entry.committed) / 1e6 for entry in written])
        self.delays += [(entry.committed - entry.due) / 1e6 for entry in written]


def percentile(values: list[float], share: float) -> float:
    """Return the value that `share` of the sorted values do not exceed."""
    return values[min(len(values) - 1, int(share * len(values)))]


@dataclass(frozen=True)
class Run:
    """One run of a connector, at every rate."""

    variant: str
    exactly_once: bool
    client: ConnectClient
    """Client of the worker that runs the connector, because exactly-once support is a setting of the worker."""


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    machine_info = machine()
    samples: dict[Cell, Samples] = defaultdict(Samples)
    with benchmark_stack() as bench, worker_without_exactly_once(bench) as at_least_once, SPAWN.Pool(1) as writers:
        with bench.database() as connection:
            backlog.prepare(connection)
        workers = ((True, bench.deployment.connect), (False, at_least_once))
        runs = [Run(name, exactly_once, client) for name in VARIANTS for exactly_once, client in workers]
        for number in range(ROUNDS + 1):
            round_samples, seconds = (samples, SECONDS) if number else (defaultdict(Samples), FIRST_SECONDS)
            # In alternating order, so that a gradual change of the machine's speed affects all variants equally.
            for position, run in enumerate(runs if number % 2 else reversed(runs)):
                measure(bench, writers, f"bench-{number}-{position}", run, seconds, round_samples)
    report(samples, machine_info)
    return 0


def measure(
    bench: BenchmarkStack, writers: Pool, name: str, run: Run, seconds: float, samples: dict[Cell, Samples]
) -> None:
    """Start a connector, warm it up, write at every rate, and match the received events with the written events."""
    unique = name.replace("-", "_")
    with bench.topic(f"bench.{unique}") as topic, bench.slot(unique) as lsn:
        config = {**VARIANTS[run.variant](bench, topic), "slot.name": unique}
        if not run.exactly_once:
            config["exactly.once.support"] = "requested"  # a connector's default
        with reading(bench, topic) as reader, bench.connector(name, config, lsn, client=run.client):
            for rate in RATES:
                writers.apply(write, (bench.state.postgres, rate, WARM_UP_SECONDS))
            reader.wait(sum(int(rate * WARM_UP_SECONDS) for rate in RATES))
            written = {}
            for rate in RATES:
                written[rate] = writers.apply(write, (bench.state.postgres, rate, seconds))
                reader.wait(reader.expected + len(written[rate]))
    for rate, entries in written.items():
        cell = Cell(rate, run.exactly_once, run.variant)
        samples[cell].add(entries, reader.arrived)
        values = sorted(samples[cell].rounds[-1])
        print_progress(f"{name} {cell}: p50 {percentile(values, 0.5):.1f} ms, p99 {percentile(values, 0.99):.1f} ms")


class Reader:
    """The consumer, in a separate process."""

    def __init__(self, bench: BenchmarkStack, topic: str) -> None:
        self.results, self.arrived_count, self.stopping = SPAWN.Queue(), SPAWN.Value("q", 0), SPAWN.Event()
        self.expected = 0
        self.arrived: dict[str, int] = {}
        settings = client_settings(bench.deployment.environment.kafka)
        self.process = SPAWN.Process(
            target=read,
            args=(settings, topic, PARTITIONS, self.results, self.arrived_count, self.stopping),
            daemon=True,
        )

    def wait(self, events: int) -> None:
        """Wait until `events` events have arrived since the start. Raises WaitTimeoutError."""
        self.expected = events

        def poll() -> Observation[bool]:
            return Observation(
                True if self.arrived_count.value >= events else None, f"{self.arrived_count.value} of {events}"
            )

        wait_for("every event to arrive", poll, seconds=ARRIVE_SECONDS)


@contextmanager
def reading(bench: BenchmarkStack, topic: str) -> Iterator[Reader]:
    """Read a topic during the block, and fill `arrived` at the end of the block."""
    reader = Reader(bench, topic)
    reader.process.start()
    try:
        assert reader.results.get(timeout=ARRIVE_SECONDS) == READY
        yield reader
        reader.stopping.set()
        reader.arrived = reader.results.get(timeout=ARRIVE_SECONDS)
    finally:
        reader.stopping.set()
        reader.process.join(timeout=ARRIVE_SECONDS)


def report(samples: dict[Cell, Samples], machine_info: dict[str, object]) -> None:
    """Publish the median of the rounds' percentiles."""
    measures = {cell: measured(cell_samples) for cell, cell_samples in sorted(samples.items())}
    bounds = [
        Bound(
            f"latency_{figure}_vs_{name}{cell.suffix}",
            measures[cell][f"{figure}_ms"] / measures[Cell(BOUND_RATE, cell.exactly_once, name)][f"{figure}_ms"],
            must,
            goal,
            at_most=True,
        )
        for name, must, goal in BOUNDS
        for cell in (Cell(BOUND_RATE, True, "router"), Cell(BOUND_RATE, False, "router"))
        for figure in ("p50", "p99")
    ]
    content = document(
        machine=machine_info,
        samples={str(cell): samples[cell].rounds for cell in measures},
        measures={str(cell): measure for cell, measure in measures.items()},
        ratios={bound.name: bound.ratio for bound in bounds},
        values={
            f"latency{cell.rate}_{figure}_ms{cell.suffix}": measure[f"{figure}_ms"]
            for cell, measure in measures.items()
            if cell.variant == "router"
            for figure in ("p50", "p99")
        },
        rounds=ROUNDS,
        seconds=SECONDS,
    )
    heading = ("tx/s", "exactly once", "variant", "p50 ms", "p99 ms", "max ms")
    rows = [table_row(cell, measure) for cell, measure in measures.items()]
    publish("latency", content, markdown(heading, rows) + bound_table(bounds))


def measured(samples: Samples) -> dict[str, Any]:
    """Return the figures of one cell, in milliseconds."""
    return {
        "p50_ms": statistics.median(samples.percentiles(0.5)),
        "p99_ms": statistics.median(samples.percentiles(0.99)),
        "max_ms": samples.all[-1],
        "events": len(samples.all),
        "written_late_p99_ms": percentile(sorted(samples.delays), 0.99),
        "round_p50_ms": samples.percentiles(0.5),
        "round_p99_ms": samples.percentiles(0.99),
    }


def table_row(cell: Cell, measure: dict[str, Any]) -> list[str]:
    """Return one row of the table."""
    return [
        f"{cell.rate:,}",
        "on" if cell.exactly_once else "off",
        LABELS.get(cell.variant, cell.variant),
        *(f"{measure[figure]:.1f}" for figure in ("p50_ms", "p99_ms", "max_ms")),
    ]


if __name__ == "__main__":
    sys.exit(main())
