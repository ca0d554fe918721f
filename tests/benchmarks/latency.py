#!/usr/bin/env python3
"""How long an event takes from its commit to a read_committed consumer, for OutboxRouter and for EventRouter.

See docs/performance.md, "The source connector", for what is measured and how. ROUNDS, SECONDS (per rate and round)
and TRY (settings of one more OutboxRouter, see variants.tried) can be set.
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
from tests.benchmarks.latency_reader import READY, read
from tests.benchmarks.latency_writer import Written, write
from tests.benchmarks.report import Bound, bound_table, machine, markdown, publish
from tests.benchmarks.stage import PARTITIONS, Stage, say, stage, worker_without_exactly_once
from tests.benchmarks.variants import Variant

from outbox_kit.connect.client import ConnectClient
from outbox_kit.kafka.client import client_settings
from outbox_kit.waiting import Seen, wait_for

ROUNDS = int(os.environ.get("ROUNDS", "3"))
SECONDS = float(os.environ.get("SECONDS", "10"))
RATES = (200, 1000)
WARM_UP_SECONDS = 3.0
# At each rate of a first round that is not counted: a worker's first connectors run in an interpreter.
FIRST_SECONDS = min(SECONDS, 5.0)
ARRIVE_SECONDS = 60
VARIANTS: dict[str, Variant] = {
    "OutboxRouter": variants.outbox_router,
    "EventRouter": variants.event_router,
    "EventRouter, Debezium's defaults": variants.event_router_defaults,
    **variants.tried(os.environ.get("TRY", "")),
}
BOUNDS = (("EventRouter, Debezium's defaults", 0.2, 0.2), ("EventRouter", 1.0, 1.0))
BOUND_RATE = 200
SPAWN = multiprocessing.get_context("spawn")  # librdkafka does not survive a fork


@dataclass(frozen=True, order=True)
class Cell:
    """One line of the result."""

    rate: int
    exactly_once: bool
    variant: str

    def __str__(self) -> str:
        return f"{self.variant}, exactly once {'on' if self.exactly_once else 'off'}, {self.rate} tx/s"


@dataclass
class Samples:
    """Milliseconds of one cell by round, and how late the writer was."""

    rounds: list[list[float]] = field(default_factory=list)
    late: list[float] = field(default_factory=list)

    @property
    def all(self) -> list[float]:
        return sorted(value for each in self.rounds for value in each)

    def percentiles(self, share: float) -> list[float]:
        """One of each round."""
        return [percentile(sorted(each), share) for each in self.rounds]

    def add(self, written: list[Written], arrived: dict[str, int]) -> None:
        self.rounds.append([(arrived[entry.event] - entry.committed) / 1e6 for entry in written])
        self.late += [(entry.committed - entry.due) / 1e6 for entry in written]


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of the sorted values do not exceed."""
    return values[min(len(values) - 1, int(share * len(values)))]


@dataclass(frozen=True)
class Run:
    """One connector, at every rate."""

    variant: str
    exactly_once: bool
    client: ConnectClient
    """Of the worker that runs it: exactly once is the worker's to decide."""


def main() -> int:
    """Measure, print, write."""
    before = machine()
    samples: dict[Cell, Samples] = defaultdict(Samples)
    with stage() as place, worker_without_exactly_once(place) as other, SPAWN.Pool(1) as writers:
        with place.database() as connection:
            backlog.prepare(connection)
        workers = ((True, place.deployment.connect), (False, other))
        runs = [Run(name, exactly_once, client) for name in VARIANTS for exactly_once, client in workers]
        for number in range(ROUNDS + 1):
            kept, seconds = (samples, SECONDS) if number else (defaultdict(Samples), FIRST_SECONDS)
            # There and back, so that what grows from run to run meets all variants alike.
            for position, run in enumerate(runs if number % 2 else reversed(runs)):
                measure(place, writers, f"bench-{number}-{position}", run, seconds, kept)
    report(samples, before)
    return 0


def measure(place: Stage, writers: Pool, name: str, run: Run, seconds: float, samples: dict[Cell, Samples]) -> None:
    """Start a connector, warm it up, write at every rate, and match what arrived with what was written."""
    unique = name.replace("-", "_")
    with place.topic(f"bench.{unique}") as topic, place.slot(unique) as lsn:
        config = {**VARIANTS[run.variant](place, topic), "slot.name": unique}
        if not run.exactly_once:
            config["exactly.once.support"] = "requested"  # what a connector has by default: as the worker can
        with reading(place, topic) as reader, place.connector(name, config, lsn, client=run.client):
            for rate in RATES:
                writers.apply(write, (place.state.postgres, rate, WARM_UP_SECONDS))
            reader.wait(sum(int(rate * WARM_UP_SECONDS) for rate in RATES))
            written = {}
            for rate in RATES:
                written[rate] = writers.apply(write, (place.state.postgres, rate, seconds))
                reader.wait(reader.expected + len(written[rate]))
    for rate, entries in written.items():
        cell = Cell(rate, run.exactly_once, run.variant)
        samples[cell].add(entries, reader.arrived)
        values = sorted(samples[cell].rounds[-1])
        say(f"{name} {cell}: p50 {percentile(values, 0.5):.1f} ms, p99 {percentile(values, 0.99):.1f} ms")


class Reader:
    """The consumer's process, seen from here."""

    def __init__(self, place: Stage, topic: str) -> None:
        self.results, self.seen, self.ended = SPAWN.Queue(), SPAWN.Value("q", 0), SPAWN.Event()
        self.expected = 0
        self.arrived: dict[str, int] = {}
        settings = client_settings(place.deployment.environment.kafka)
        self.process = SPAWN.Process(
            target=read, args=(settings, topic, PARTITIONS, self.results, self.seen, self.ended), daemon=True
        )

    def wait(self, events: int) -> None:
        """Wait until so many events arrived since the start. Raises WaitTimeoutError: some are lost or late."""
        self.expected = events

        def look() -> Seen[bool]:
            return Seen(True if self.seen.value >= events else None, f"{self.seen.value} of {events} events")

        wait_for("every event to arrive", look, seconds=ARRIVE_SECONDS)


@contextmanager
def reading(place: Stage, topic: str) -> Iterator[Reader]:
    """Read a topic for the length of the block; after it `arrived` is filled."""
    reader = Reader(place, topic)
    reader.process.start()
    try:
        assert reader.results.get(timeout=ARRIVE_SECONDS) == READY
        yield reader
        reader.ended.set()
        reader.arrived = reader.results.get(timeout=ARRIVE_SECONDS)
    finally:
        reader.ended.set()
        reader.process.join(timeout=ARRIVE_SECONDS)


def report(samples: dict[Cell, Samples], before: dict[str, object]) -> None:
    """The median of the rounds, each percentile by itself; how the rounds differ is in the file."""
    measures: dict[Cell, dict[str, Any]] = {
        cell: {
            "p50_ms": statistics.median(found.percentiles(0.5)),
            "p99_ms": statistics.median(found.percentiles(0.99)),
            "max_ms": found.all[-1],
            "events": len(found.all),
            "written_late_p99_ms": percentile(sorted(found.late), 0.99),
            "round_p50_ms": found.percentiles(0.5),
            "round_p99_ms": found.percentiles(0.99),
        }
        for cell, found in sorted(samples.items())
    }
    bounds = [
        Bound(
            f"OutboxRouter / {name}, {figure[:3]}, exactly once {'on' if exactly_once else 'off'}",
            measures[Cell(BOUND_RATE, exactly_once, "OutboxRouter")][figure]
            / measures[Cell(BOUND_RATE, exactly_once, name)][figure],
            must,
            goal,
            at_most=True,
        )
        for name, must, goal in BOUNDS
        for exactly_once in (True, False)
        for figure in ("p50_ms", "p99_ms")
    ]
    rows = [
        [
            f"{cell.rate:,}",
            "on" if cell.exactly_once else "off",
            cell.variant,
            *(f"{found[figure]:.1f}" for figure in ("p50_ms", "p99_ms", "max_ms")),
        ]
        for cell, found in measures.items()
    ]
    heading = ("tx/s", "exactly once", "variant", "p50 ms", "p99 ms", "max ms")
    tables = markdown(heading, rows) + bound_table(bounds)
    document = {
        "machine": before,
        "rounds": ROUNDS,
        "seconds": SECONDS,
        "measures": {str(cell): found for cell, found in measures.items()},
        "ratios": {bound.name: bound.ratio for bound in bounds},
    }
    publish("latency", document, tables)


if __name__ == "__main__":
    sys.exit(main())
