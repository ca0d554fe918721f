"""What a batch of 10,000 events costs in a warm session, from the call of materialize() to its return.

Every size of table has a topic of its own: filled with one event for each key, then with one batch of events of random
keys after the other. PostgreSQL is tried at each size, the other targets at one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.benchmarks.materialize.place import POSTGRES, Place, Stock
from tests.benchmarks.materialize.variants import materialize
from tests.benchmarks.stage import say

from outbox_spark.jobs.model import MaterializeJob

BATCH = 10_000


@dataclass(frozen=True)
class Filled:
    """Tables of one size."""

    stock: Stock
    jobs: dict[str, MaterializeJob]
    """By name of the measure."""


def measure(here: Place, kinds: list[str], sizes: list[int], common: int, rounds: int) -> dict[str, list[float]]:
    """Seconds by measure: `batch10k_KIND` with `common` keys in the table, `batch10k_postgres_KEYS` at each size.

    All batches of a round one after the other, each round beginning with another; the first round is not counted.
    """
    samples: dict[str, list[float]] = {}
    with ExitStack() as stack:
        filled = [stack.enter_context(_filled(here, kinds if keys == common else [POSTGRES], keys)) for keys in sizes]
        for number in range(rounds + 1):
            for tables in filled:
                tables.stock.send(BATCH)
            runs = [(name, job) for tables in filled for name, job in tables.jobs.items()]
            shift = number % len(runs)
            for name, job in runs[shift:] + runs[:shift]:
                seconds = _timed(here, job)
                say(f"round {number}, {name}: {seconds:.2f} s")
                if number:
                    samples.setdefault(name, []).append(seconds)
    for kind in kinds:
        samples[f"batch10k_{kind}"] = samples[_name(kind, common)]
    return samples


def _timed(here: Place, job: MaterializeJob) -> float:
    here.settle()
    started = time.perf_counter()
    outcome = materialize(here, job)
    seconds = time.perf_counter() - started
    if outcome.records != BATCH:
        raise RuntimeError(f"{job}: {outcome.records} records of {BATCH}")
    return seconds


@contextmanager
def _filled(here: Place, kinds: list[str], keys: int) -> Iterator[Filled]:
    with here.topic(f"bench.keys{keys}", keys) as stock:
        say(f"filling tables of {keys} keys: {', '.join(kinds)}")
        stock.send_each()
        jobs = {_name(kind, keys): here.job(kind, stock.topic, f"keys_{keys}") for kind in kinds}
        for job in jobs.values():
            outcome = materialize(here, job)
            if outcome.upserts != keys:
                raise RuntimeError(f"{job}: {outcome.upserts} rows of {keys}")
        try:
            yield Filled(stock, jobs)
        finally:
            for kind in kinds:
                here.forget(kind, f"keys_{keys}")


def _name(kind: str, keys: int) -> str:
    return f"batch10k_{kind}_{keys}"
