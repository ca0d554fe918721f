"""Duration of a batch of 10,000 events in a round of `outbox-materialize --interval`, beside Debezium's JDBC sink.

Each size of table has its own topic. The topic is filled with one event for each key, then with batches of events of
random keys. PostgreSQL is measured at each size, the other targets and the sink at one size. A batch of the sink starts
when the paused connector is resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession
from tests.benchmarks.benchmark_stack import print_progress
from tests.benchmarks.materialize import jdbc_sink
from tests.benchmarks.materialize.spark_bench import POSTGRES, BookTopic, SparkBench

from outbox_kit.results import silent
from outbox_spark.jobs.model import MaterializeJob
from outbox_spark.runs.clients import Clients
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.runs.prepared_rows import PreparedRows
from outbox_spark.session.run_session import run_session

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


def measure(bench: SparkBench, kinds: list[str], sizes: list[int], common: int, rounds: int) -> dict[str, list[float]]:
    """Return seconds by measure: `batch10k_KIND` for tables of `common` keys, `batch10k_postgres_KEYS` for each size.

    Each round runs all batches in turn, starting with a different batch. The first two rounds are warm-ups.
    """
    samples: dict[str, list[float]] = {}
    with ExitStack() as stack:
        session = stack.enter_context(run_session(bench.spark, bench.job(POSTGRES, "bench.keys", "keys")))
        kept = Rounds(bench, session, stack.enter_context(Clients()))
        filled = [
            stack.enter_context(_filled(kept, [*kinds, SINK] if keys == common else [POSTGRES], keys)) for keys in sizes
        ]
        for number in range(rounds + 2):
            for tables in filled:
                tables.topic.send(BATCH)
                tables.topic.send_markers()
            runs = [(name, batch) for tables in filled for name, batch in tables.batches.items()]
            shift = number % len(runs)
            for name, batch in runs[shift:] + runs[:shift]:
                bench.collect_garbage()
                seconds = batch()
                print_progress(f"round {number}, {name}: {seconds:.2f} s")
                if number >= 2:
                    samples.setdefault(name, []).append(seconds)
    for kind in [*kinds, SINK]:
        samples[f"batch10k_{kind}"] = samples[_name(kind, common)]
    return samples


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
