#!/usr/bin/env python3
"""Time and memory of first fills of 5 to 30 million events into PostgreSQL, each in a separate process.

See docs/performance-tables.md, "First fills". Settings: ROUNDS (the largest topic is read once), MILLIONS (numbers of
millions of events, separated by commas).
"""

from __future__ import annotations

import os
import statistics
import sys
from contextlib import ExitStack
from dataclasses import asdict

from tests.benchmarks.benchmark_stack import benchmark_stack, print_progress
from tests.benchmarks.materialize import cold_process
from tests.benchmarks.materialize.cold_process import ColdRun
from tests.benchmarks.materialize.report import MEMORY_GB
from tests.benchmarks.materialize.spark_bench import POSTGRES, BookTopic, SparkBench, spark_bench
from tests.benchmarks.report import Bound, bound_table, document, machine, markdown, publish

ROUNDS = int(os.environ.get("ROUNDS", "3"))
MILLION = 1_000_000
KEYS = {5: MILLION // 2, 10: MILLION, 30: 10 * MILLION}
"""Number of keys by millions of events."""
MILLIONS = [int(number) for number in os.environ.get("MILLIONS", "5,10,30").split(",")]


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    description, runs = machine(), {millions: list[ColdRun]() for millions in MILLIONS}
    with benchmark_stack() as bench_stack, spark_bench(bench_stack) as bench, ExitStack() as stack:
        topics = {millions: _filled_topic(stack, bench, millions) for millions in MILLIONS}
        for number in range(ROUNDS):
            for millions, topic in topics.items():
                if millions <= 10 or number == 0:
                    runs[millions].append(_fill(bench, topic, millions))
    bounds = _bounds(runs)
    content = document(
        machine=description,
        samples={str(millions): [asdict(run) for run in taken] for millions, taken in runs.items()},
        measures={str(millions): {"median_s": _seconds(taken)} for millions, taken in runs.items()},
        ratios={bound.name: bound.ratio for bound in bounds[:-1]},
        values={bounds[-1].name: bounds[-1].ratio},
    )
    publish("growth", content, _table(runs) + bound_table(bounds))
    return 0


def _filled_topic(stack: ExitStack, bench: SparkBench, millions: int) -> BookTopic:
    topic = stack.enter_context(bench.topic(f"bench.growth{millions}", KEYS[millions]))
    topic.send(millions * MILLION)
    print_progress(f"sent {millions} million events")
    return topic


def _fill(bench: SparkBench, topic: BookTopic, millions: int) -> ColdRun:
    bench.clean_up()
    run = cold_process.run(bench.state, topic.name, "growth")
    if run.records != millions * MILLION:
        raise RuntimeError(f"the run read {run.records} records of {millions} million")
    print_progress(f"{millions} million events: {run.seconds:.1f} s, {run.gb:.2f} GB")
    bench.drop_table(POSTGRES, "growth")
    return run


def _seconds(runs: list[ColdRun]) -> float:
    return statistics.median(run.seconds for run in runs)


def _bounds(runs: dict[int, list[ColdRun]]) -> list[Bound]:
    peak = max(run.gb for taken in runs.values() for run in taken)
    memory = Bound("peak_gb", peak, MEMORY_GB, MEMORY_GB, at_most=True)
    if 5 not in runs or 10 not in runs:
        return [memory]
    return [Bound("10m_vs_5m", _seconds(runs[10]) / _seconds(runs[5]), 2.3, 2.05, at_most=True), memory]


def _table(runs: dict[int, list[ColdRun]]) -> str:
    rows = []
    for millions, taken in runs.items():
        seconds, events = _seconds(taken), millions * MILLION
        peak = max(taken, key=lambda run: run.gb)
        memory = [f"{peak.jvm_gb:.2f}", f"{peak.python_gb:.2f}", f"{peak.gb:.2f}"]
        rows.append([f"{events:,}", f"{KEYS[millions]:,}", f"{seconds:.1f}", f"{events / seconds:,.0f}", *memory])
    return markdown(("events", "keys", "median s", "events/s", "JVM GB", "Python GB", "together"), rows)


if __name__ == "__main__":
    sys.exit(main())
