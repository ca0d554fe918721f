#!/usr/bin/env python3
"""Duration of a batch of 10,000 events in a round of `outbox-materialize --interval`, beside Debezium's JDBC sink.

Also measures runs for few events in a new process. Settings: ROUNDS, SIZES (numbers of rows of the PostgreSQL tables),
KEYS (the size at which all targets and the sink are measured). See docs/performance-batches.md, "Small batches".

Each size of table has its own topic. The topic is filled with one event for each key, then with batches of events of
random keys. A batch of the sink starts when the paused connector is resumed.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial

from pyspark.sql import SparkSession
from tests.benchmarks.benchmark_stack import PLUGINS, benchmark_stack, print_progress
from tests.benchmarks.materialize import cold_process, jdbc_sink
from tests.benchmarks.materialize.cold_process import ColdRun
from tests.benchmarks.materialize.spark_bench import POSTGRES, BookTopic, SparkBench, spark_bench
from tests.benchmarks.report import Bound, bound_table, document, machine, markdown, publish, spread

from outbox_kit.results import silent
from outbox_spark.jobs.model import MaterializeJob
from outbox_spark.runs.clients import Clients
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.runs.prepared_rows import PreparedRows
from outbox_spark.session.run_session import run_session

ROUNDS = int(os.environ.get("ROUNDS", "8"))
KEYS = int(os.environ.get("KEYS", "1000000"))
SIZES = [int(size) for size in os.environ.get("SIZES", f"10000,100000,{KEYS}").split(",")]
WARM_UP_ROUNDS = 4
CHECKPOINT_ROUNDS = 3
SECONDS = (
    ("batch10k_postgres", 0.8, 0.4),
    ("batch10k_delta", 3.5, 2.5),
    ("batch10k_iceberg", 2.2, 1.5),
)
SINK_RATIO, COLD_CPU_RATIO = (4.0, 2.0), (0.75, 0.5)
"""Must and goal of the time of PostgreSQL compared with that of the sink, and of the CPU time of a new process."""
BATCH = 10_000
SINK = "jdbc-sink"
MARKERS = len(jdbc_sink.MARKERS)


@dataclass(frozen=True)
class Filled:
    """Tables of one size. `batches` writes the new records of the topic to a table, and returns the seconds."""

    topic: BookTopic
    batches: dict[str, Callable[[], float]]


@dataclass(frozen=True)
class Rounds:
    """What the rounds of `outbox-materialize --interval` keep."""

    bench: SparkBench
    session: SparkSession
    clients: Clients

    def run(self, job: MaterializeJob, prepared: PreparedRows) -> float:
        started = time.perf_counter()
        outcome = materialize(self.session, job, silent, clients=self.clients, prepared=prepared)
        seconds = time.perf_counter() - started
        if outcome.records != BATCH + MARKERS:
            raise RuntimeError(f"{job}: {outcome.records} records of {BATCH + MARKERS}")
        return seconds


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    machine_info = machine()
    with benchmark_stack(plugins=(PLUGINS,)) as bench_stack, spark_bench(bench_stack) as bench:
        cold = cold_process.compare(bench, ROUNDS)
        report(measure(bench, bench.kinds(), SIZES, KEYS, ROUNDS), cold, machine_info)
    return 0


def measure(bench: SparkBench, kinds: list[str], sizes: list[int], common: int, rounds: int) -> dict[str, list[float]]:
    """Return seconds by measure: `batch10k_KIND` for tables of `common` keys, `batch10k_postgres_KEYS` for each size.

    Each round runs all batches in turn, starting with a different batch. WARM_UP_ROUNDS rounds precede. Afterwards,
    CHECKPOINT_ROUNDS rounds measure what a checkpoint before the batch costs in PostgreSQL.
    """
    bench.disable_timed_checkpoints()
    samples: dict[str, list[float]] = {}
    with ExitStack() as stack:
        session = stack.enter_context(run_session(bench.spark, bench.job(POSTGRES, "bench.keys", "keys")))
        kept = Rounds(bench, session, stack.enter_context(Clients()))
        filled = [
            stack.enter_context(_filled(kept, [*kinds, SINK] if keys == common else [POSTGRES], keys)) for keys in sizes
        ]
        batches = {name: batch for tables in filled for name, batch in tables.batches.items()}
        after_checkpoint = {
            _name(f"{kind}_after_checkpoint", common): batches[_name(kind, common)] for kind in (POSTGRES, SINK)
        }
        bench.checkpoint()
        for number in range(WARM_UP_ROUNDS + rounds):
            seconds = _round(filled, batches, number, before=bench.collect_garbage)
            if number >= WARM_UP_ROUNDS:
                _add(samples, seconds)
        for number in range(CHECKPOINT_ROUNDS):
            _add(samples, _round(filled, after_checkpoint, number, before=bench.clean_up))
    for kind in [*kinds, SINK]:
        samples[f"batch10k_{kind}"] = samples[_name(kind, common)]
    return samples


def _round(
    filled: list[Filled], batches: dict[str, Callable[[], float]], number: int, *, before: Callable[[], None]
) -> dict[str, float]:
    """Send a batch to each topic, and call `before` and a batch in turn. Return the seconds by name."""
    for tables in filled:
        tables.topic.send(BATCH)
        tables.topic.send_markers()
    names, seconds = list(batches), dict[str, float]()
    shift = number % len(names)
    for name in names[shift:] + names[:shift]:
        before()
        seconds[name] = batches[name]()
        print_progress(f"round {number}, {name}: {seconds[name]:.2f} s")
    return seconds


def _add(samples: dict[str, list[float]], seconds: dict[str, float]) -> None:
    for name, actual in seconds.items():
        samples.setdefault(name, []).append(actual)


@contextmanager
def _filled(rounds: Rounds, kinds: list[str], keys: int) -> Iterator[Filled]:
    bench = rounds.bench
    with ExitStack() as stack:
        topic = stack.enter_context(bench.topic(f"bench.keys{keys}", keys))
        print_progress(f"filling tables of {keys} keys: {', '.join(kinds)}")
        topic.send_first_events()
        topic.send_markers()
        batches: dict[str, Callable[[], float]] = {}
        for kind in kinds:
            table = f"keys_{keys}_{kind}".replace("-", "_")
            stack.callback(bench.drop_table, POSTGRES if kind == SINK else kind, table)
            if kind == SINK:
                batches[_name(kind, keys)] = stack.enter_context(jdbc_sink.batches(bench, topic.name, table))
                continue
            job = bench.job(kind, topic.name, table)
            outcome = materialize(rounds.session, job, silent, clients=rounds.clients)
            if outcome.upserts != keys + MARKERS:
                raise RuntimeError(f"{job}: {outcome.upserts} rows of {keys + MARKERS}")
            batches[_name(kind, keys)] = partial(rounds.run, job, PreparedRows())
        yield Filled(topic, batches)


def _name(kind: str, keys: int) -> str:
    return f"batch10k_{kind}_{keys}"


def report(batches: dict[str, list[float]], cold: dict[str, list[ColdRun]], machine_info: dict[str, object]) -> None:
    """Publish the medians of all rounds."""
    medians = {name: statistics.median(seconds) for name, seconds in batches.items()}
    cpu = {name: statistics.median(run.cpu_seconds for run in runs) for name, runs in cold.items()}
    bounds = [Bound(f"{name}_s", medians[name], must, goal, at_most=True) for name, must, goal in SECONDS]
    sink_ratio = medians[f"batch10k_{POSTGRES}"] / medians[f"batch10k_{SINK}"]
    bounds.append(Bound("batch10k_postgres_vs_jdbc_sink", sink_ratio, *SINK_RATIO, at_most=True))
    default = cpu[cold_process.ALL_COMPILERS]
    for name, variant in (
        ("cold_cpu", cold_process.FIRST_COMPILER),
        ("cold_cpu_with_archive", cold_process.WITH_ARCHIVE),
    ):
        bounds.append(Bound(f"{name}_vs_default", cpu[variant] / default, *COLD_CPU_RATIO, at_most=True))
    content = document(
        machine=machine_info,
        samples={**batches, **{f"cold, {name}": [asdict(run) for run in runs] for name, runs in cold.items()}},
        measures={name: spread(seconds) for name, seconds in batches.items()},
        ratios={bound.name: bound.ratio for bound in bounds if not bound.name.endswith("_s")},
        values={bound.name: bound.ratio for bound in bounds if bound.name.endswith("_s")},
        rounds=ROUNDS,
    )
    rows = [
        [name.removeprefix("batch10k_"), f"{medians[name]:.2f}", f"{min(actual):.2f}", f"{max(actual):.2f}"]
        for name, actual in batches.items()
        if name.rpartition("_")[2].isdigit()
    ]
    totals = {name: statistics.median(run.total_seconds for run in runs) for name, runs in cold.items()}
    processes = [[name, f"{totals[name]:.1f}", f"{cpu[name]:.1f}"] for name in cold]
    tables = [
        markdown(("10,000 events into a table of", "median s", "min", "max"), rows),
        markdown((f"{cold_process.COLD_EVENTS:,} events in a new process", "seconds", "CPU s"), processes),
    ]
    publish("batches", content, "\n\n".join(tables) + bound_table(bounds))


if __name__ == "__main__":
    sys.exit(main())
