#!/usr/bin/env python3
"""Throughput of materialization: each sink, compared with reading alone, Debezium's JDBC sink, and a naive job.

Starts an embedded stack and one Spark session with the launchers' settings. See docs/performance-tables.md, "The
materialization", for what is measured and how. QUICK=1 runs with few events. Settings: ROUNDS, EVENTS, ONLY (read,
reduce, a kind of target, naive, jdbc-sink, memory; separated by commas).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.benchmarks.benchmark_stack import PLUGINS, benchmark_stack, print_progress
from tests.benchmarks.materialize import cold_process, jdbc_sink, report, variants
from tests.benchmarks.materialize.cold_process import ColdRun
from tests.benchmarks.materialize.report import Results, Sample
from tests.benchmarks.materialize.spark_bench import POSTGRES, BookTopic, SparkBench, spark_bench
from tests.benchmarks.meters import cpu_seconds
from tests.benchmarks.report import machine

from outbox_spark.jobs.model import MaterializeJob, Outcome

QUICK = os.environ.get("QUICK", "") not in ("", "0")
ROUNDS = int(os.environ.get("ROUNDS", "1" if QUICK else "3"))
EVENTS = int(os.environ.get("EVENTS", "200000" if QUICK else "3000000"))
EVENTS_PER_KEY = 10
ONLY = [name for name in os.environ.get("ONLY", "").split(",") if name]


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    results = Results(machine(), EVENTS, ROUNDS)
    with benchmark_stack(plugins=(PLUGINS,)) as bench_stack, spark_bench(bench_stack) as bench:
        kinds = bench.kinds()
        with bench.topic("bench.backfill", EVENTS // EVENTS_PER_KEY) as topic:
            _send(topic, EVENTS)
            backfills(bench, topic, kinds, results)
            if _is_selected("memory"):
                results.peaks.append(_measure_peak(bench, topic, EVENTS))
    report.publish_results(results)
    return 0


def _is_selected(name: str) -> bool:
    return not ONLY or name in ONLY


@dataclass(frozen=True)
class Unit:
    """Variants that run in sequence on one table."""

    name: str
    run: Callable[[SparkBench, BookTopic, str, Results], None]
    """The arguments are the environment, the topic, an unused table name and the results."""


def backfills(bench: SparkBench, topic: BookTopic, kinds: list[str], results: Results) -> None:
    """Run all units in turn. Each round starts with a different unit. The first round is a warm-up."""
    units = _selected_units(kinds)
    for number in range(ROUNDS + 1):
        round_results = results if number else Results(results.machine, EVENTS, 0)
        shift = number % max(len(units), 1)
        for unit in [*units[shift:], *units[:shift]]:
            print_progress(f"round {number}, {unit.name}")
            unit.run(bench, topic, f"{unit.name.replace('-', '_')}_{number}", round_results)


def _selected_units(kinds: list[str]) -> list[Unit]:
    units = [
        Unit("read", _step("read", variants.read)),
        Unit("reduce", _step("reduce", variants.reduce)),
        *(Unit(kind, _sink(kind)) for kind in kinds),
        Unit("naive", _naive),
        Unit("jdbc-sink", _jdbc_sink),
    ]
    return [unit for unit in units if _is_selected(unit.name)]


def _step(name: str, step: Callable[[SparkBench, MaterializeJob], None]) -> Callable[..., None]:
    def run(bench: SparkBench, topic: BookTopic, table: str, results: Results) -> None:
        job = bench.job(POSTGRES, topic.name, table)
        results.add(name, _timed(bench, lambda: step(bench, job)))

    return run


def _sink(kind: str) -> Callable[..., None]:
    """Return a backfill into a new table, and merges of the same records as newer and as stale versions."""

    def run(bench: SparkBench, topic: BookTopic, table: str, results: Results) -> None:
        job = bench.job(kind, topic.name, table)
        outcomes: list[Outcome] = []

        def run_step(step: Callable[[SparkBench, MaterializeJob], Outcome]) -> None:
            outcomes.append(step(bench, job))

        steps = {"": variants.materialize, "_newer": variants.merge_newer, "_stale_replay": variants.replay}
        for suffix, step in steps.items():
            results.add(f"{kind}{suffix}", _timed(bench, partial(run_step, step)))
        first, newer, stale = outcomes
        if first.records != newer.records or newer.upserts != first.upserts or stale.upserts or stale.deletes:
            raise RuntimeError(f"{kind}: {[vars(outcome) for outcome in outcomes]}")
        results.check_row_count(kind, first.upserts)
        bench.drop_table(kind, table)

    return run


def _naive(bench: SparkBench, topic: BookTopic, table: str, results: Results) -> None:
    job = bench.job(POSTGRES, topic.name, table)
    results.add("naive", _timed(bench, lambda: variants.naive(bench, job)))
    results.check_row_count("naive", bench.count(table))
    bench.drop_table(POSTGRES, table)


def _jdbc_sink(bench: SparkBench, topic: BookTopic, table: str, results: Results) -> None:
    bench.clean_up()
    results.add("jdbc-sink", Sample(jdbc_sink.drain(bench, topic.name, table), 0.0))
    results.check_row_count("jdbc-sink", bench.count(table))
    bench.drop_table(POSTGRES, table)


def _timed(bench: SparkBench, step: Callable[[], object]) -> Sample:
    """Measure wall-clock seconds, and CPU seconds of the JVM that is both driver and executor."""
    bench.clean_up()
    pid = bench.spark_pid
    started, used = time.perf_counter(), cpu_seconds(pid)
    step()
    sample = Sample(time.perf_counter() - started, cpu_seconds(pid) - used)
    print_progress(f"  {sample.seconds:.2f} s, {sample.processor:.1f} s of CPU time")
    return sample


def _send(topic: BookTopic, events: int) -> None:
    started = time.perf_counter()
    topic.send(events)
    topic.send_markers()
    print_progress(f"sent {events} events in {time.perf_counter() - started:.0f} s")


def _measure_peak(bench: SparkBench, topic: BookTopic, events: int) -> ColdRun:
    table = f"memory_{events}"
    actual = cold_process.run(bench.state, topic.name, table)
    print_progress(f"separate process, {events} events: {actual.seconds:.1f} s, {actual.gb:.2f} GB")
    bench.drop_table(POSTGRES, table)
    return actual


if __name__ == "__main__":
    sys.exit(main())
