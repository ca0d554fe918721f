"""Duration of a batch of 10,000 events in a warm session, from the call of materialize() to its return.

Each size of table has its own topic. The topic is filled with one event for each key, then with batches of events of
random keys. PostgreSQL is measured at each size, the other targets at one size.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.benchmarks.benchmark_stack import print_progress
from tests.benchmarks.materialize.spark_bench import POSTGRES, BookTopic, SparkBench
from tests.benchmarks.materialize.variants import materialize

from outbox_spark.jobs.model import MaterializeJob

BATCH = 10_000


@dataclass(frozen=True)
class Filled:
    """Tables of one size."""

    topic: BookTopic
    jobs: dict[str, MaterializeJob]
    """Jobs by the name of the measure."""


def measure(bench: SparkBench, kinds: list[str], sizes: list[int], common: int, rounds: int) -> dict[str, list[float]]:
    """Return seconds by measure: `batch10k_KIND` for tables of `common` keys, `batch10k_postgres_KEYS` for each size.

    Each round runs all batches in turn, starting with a different batch. The first round is a warm-up.
    """
    samples: dict[str, list[float]] = {}
    with ExitStack() as stack:
        filled = [stack.enter_context(_filled(bench, kinds if keys == common else [POSTGRES], keys)) for keys in sizes]
        for number in range(rounds + 1):
            for tables in filled:
                tables.topic.send(BATCH)
            runs = [(name, job) for tables in filled for name, job in tables.jobs.items()]
            shift = number % len(runs)
            for name, job in runs[shift:] + runs[:shift]:
                seconds = _timed(bench, job)
                print_progress(f"round {number}, {name}: {seconds:.2f} s")
                if number:
                    samples.setdefault(name, []).append(seconds)
    for kind in kinds:
        samples[f"batch10k_{kind}"] = samples[_name(kind, common)]
    return samples


def _timed(bench: SparkBench, job: MaterializeJob) -> float:
    bench.collect_garbage()
    started = time.perf_counter()
    outcome = materialize(bench, job)
    seconds = time.perf_counter() - started
    if outcome.records != BATCH:
        raise RuntimeError(f"{job}: {outcome.records} records of {BATCH}")
    return seconds


@contextmanager
def _filled(bench: SparkBench, kinds: list[str], keys: int) -> Iterator[Filled]:
    with bench.topic(f"bench.keys{keys}", keys) as topic:
        print_progress(f"filling tables of {keys} keys: {', '.join(kinds)}")
        topic.send_first_events()
        jobs = {_name(kind, keys): bench.job(kind, topic.name, f"keys_{keys}") for kind in kinds}
        for job in jobs.values():
            outcome = materialize(bench, job)
            if outcome.upserts != keys:
                raise RuntimeError(f"{job}: {outcome.upserts} rows of {keys}")
        try:
            yield Filled(topic, jobs)
        finally:
            for kind in kinds:
                bench.drop_table(kind, f"keys_{keys}")


def _name(kind: str, keys: int) -> str:
    return f"batch10k_{kind}_{keys}"
