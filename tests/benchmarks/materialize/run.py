#!/usr/bin/env python3
"""Throughput of materialization: each sink against reading alone, Debezium's JDBC sink, and a naive job.

Starts an embedded stack and one Spark session with the launchers' settings. See docs/performance.md, "The
materialization", for what is measured and how. QUICK=1 is a short run with few events; FULL=1 also measures memory and
time from 1 to 10 million events. Settings: ROUNDS, EVENTS, SIZES (rows of the tables that batches go to), ONLY (read,
reduce, a kind of target, naive, jdbc-sink, memory, batches; separated by commas).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.benchmarks.materialize import batches, jdbc_sink, report, variants
from tests.benchmarks.materialize.memory import Peak, peak
from tests.benchmarks.materialize.place import POSTGRES, Place, Stock, place
from tests.benchmarks.materialize.report import Results, Sample
from tests.benchmarks.meters import processor_seconds
from tests.benchmarks.report import machine
from tests.benchmarks.stage import PLUGINS, say, stage

from outbox_spark.jobs.model import MaterializeJob, Outcome

QUICK = os.environ.get("QUICK", "") not in ("", "0")
FULL = os.environ.get("FULL", "") not in ("", "0")
ROUNDS = int(os.environ.get("ROUNDS", "1" if QUICK else "3"))
EVENTS = int(os.environ.get("EVENTS", "200000" if QUICK else "3000000"))
EVENTS_PER_KEY = 10
TABLE_SIZES = [
    int(size)
    for size in os.environ.get("SIZES", "10000,100000" if QUICK else "10000,100000,1000000,5000000").split(",")
]
COMMON_SIZE = 100_000 if QUICK else 1_000_000
ONLY = [name for name in os.environ.get("ONLY", "").split(",") if name]
GROWTH = [1_000_000, 2_000_000, 5_000_000, 10_000_000]


def main() -> int:
    """Measure, print, write."""
    results = Results(machine(), EVENTS, ROUNDS)
    with stage(plugins=(PLUGINS,)) as ground, place(ground) as here:
        kinds = here.kinds()
        with here.topic("bench.backfill", EVENTS // EVENTS_PER_KEY) as stock:
            _send(stock, EVENTS)
            backfills(here, stock, kinds, results)
            if _wanted("memory"):
                results.peaks.append(_peak(here, stock, EVENTS))
        if _wanted("batches"):
            results.batches = batches.measure(here, kinds, TABLE_SIZES, COMMON_SIZE, ROUNDS)
        if FULL:
            _grow(here, results)
    report.publish_results(results)
    return 0


def _wanted(name: str) -> bool:
    return not ONLY or name in ONLY


@dataclass(frozen=True)
class Unit:
    """Variants that belong together: each changes what the one before it left."""

    name: str
    run: Callable[[Place, Stock, str, Results], None]
    """Takes a table name that is free."""


def backfills(here: Place, stock: Stock, kinds: list[str], results: Results) -> None:
    """Run all units in turn, each round starting with another one; the first round warms up and is not counted."""
    units = _chosen(kinds)
    for number in range(ROUNDS + 1):
        counted = results if number else Results(results.machine, EVENTS, 0)
        shift = number % max(len(units), 1)
        for unit in [*units[shift:], *units[:shift]]:
            say(f"round {number}, {unit.name}")
            unit.run(here, stock, f"{unit.name.replace('-', '_')}_{number}", counted)


def _chosen(kinds: list[str]) -> list[Unit]:
    units = [
        Unit("read", _step("read", variants.read)),
        Unit("reduce", _step("reduce", variants.reduce)),
        *(Unit(kind, _sink(kind)) for kind in kinds),
        Unit("naive", _naive),
        Unit("jdbc-sink", _jdbc_sink),
    ]
    return [unit for unit in units if _wanted(unit.name)]


def _step(name: str, step: Callable[[Place, MaterializeJob], None]) -> Callable[..., None]:
    def run(here: Place, stock: Stock, table: str, results: Results) -> None:
        job = here.job(POSTGRES, stock.topic, table)
        results.add(name, _timed(here, lambda: step(here, job)))

    return run


def _sink(kind: str) -> Callable[..., None]:
    """A backfill into no table, the same records as newer versions, and the same again as stale ones."""

    def run(here: Place, stock: Stock, table: str, results: Results) -> None:
        job = here.job(kind, stock.topic, table)
        outcomes: list[Outcome] = []
        steps = {"": variants.materialize, "_newer": variants.merge_newer, "_stale_replay": variants.replay}
        for suffix, step in steps.items():
            results.add(f"{kind}{suffix}", _timed(here, partial(_kept, outcomes, step, here, job)))
        first, newer, stale = outcomes
        if first.records != newer.records or newer.upserts != first.upserts or stale.upserts or stale.deletes:
            raise RuntimeError(f"{kind}: {[vars(outcome) for outcome in outcomes]}")
        results.agree(kind, first.upserts)
        here.forget(kind, table)

    return run


def _kept(
    outcomes: list[Outcome], step: Callable[[Place, MaterializeJob], Outcome], here: Place, job: MaterializeJob
) -> None:
    outcomes.append(step(here, job))


def _naive(here: Place, stock: Stock, table: str, results: Results) -> None:
    job = here.job(POSTGRES, stock.topic, table)
    results.add("naive", _timed(here, lambda: variants.naive(here, job)))
    results.agree("naive", here.count(table))
    here.forget(POSTGRES, table)


def _jdbc_sink(here: Place, stock: Stock, table: str, results: Results) -> None:
    here.settle()
    results.add("jdbc-sink", Sample(jdbc_sink.drain(here, stock.topic, table), 0.0))
    results.agree("jdbc-sink", here.count(table))
    here.forget(POSTGRES, table)


def _timed(here: Place, step: Callable[[], object]) -> Sample:
    """Wall-clock seconds, and CPU seconds of the JVM that is driver and executor."""
    here.settle()
    pid = here.spark_pid
    started, used = time.perf_counter(), processor_seconds(pid)
    step()
    sample = Sample(time.perf_counter() - started, processor_seconds(pid) - used)
    say(f"  {sample.seconds:.2f} s, {sample.processor:.1f} s of the processor")
    return sample


def _send(stock: Stock, events: int) -> None:
    started = time.perf_counter()
    stock.send(events)
    stock.send_markers()
    say(f"sent {events} events in {time.perf_counter() - started:.0f} s")


def _grow(here: Place, results: Results) -> None:
    """Measure time and memory in a separate process for increasing numbers of events; the largest decides."""
    for events in GROWTH:
        with here.topic(f"bench.growth{events}", events // EVENTS_PER_KEY) as stock:
            _send(stock, events)
            results.peaks.append(_peak(here, stock, events))


def _peak(here: Place, stock: Stock, events: int) -> Peak:
    table = f"memory_{events}"
    actual = peak(here.state, stock.topic, table)
    say(f"a process of its own, {events} events: {actual.seconds:.1f} s, {actual.gb:.2f} GB")
    here.forget(POSTGRES, table)
    return actual


if __name__ == "__main__":
    sys.exit(main())
