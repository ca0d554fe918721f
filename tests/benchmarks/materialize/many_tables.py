#!/usr/bin/env python3
"""Duration of a round of `outbox-materialize --interval` for many PostgreSQL tables, with several values of --threads.

IDLE tables of BUSY topics have no new records. Each of BUSY tables has EVENTS new ones per round. Also measures the CPU
time of a single run of the command for the idle tables. Other setting: ROUNDS. See docs/performance-batches.md,
"Many tables".
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.benchmarks.benchmark_stack import benchmark_stack, print_progress
from tests.benchmarks.materialize.spark_bench import POSTGRES, BookTopic, SparkBench, spark_bench
from tests.benchmarks.report import Bound, bound_table, document, machine, markdown, publish, spread

from outbox_kit.results import silent
from outbox_spark.commands.interval import attempt_of
from outbox_spark.commands.materialize import Runner
from outbox_spark.commands.workers import Workers, WorkerThreads
from outbox_spark.jobs import job_file
from outbox_spark.jobs.model import MaterializeJob, Status
from outbox_spark.runs.clients import Clients
from outbox_spark.session.run_session import run_session

ROUNDS = int(os.environ.get("ROUNDS", "8"))
IDLE = int(os.environ.get("IDLE", "200"))
BUSY = int(os.environ.get("BUSY", "20"))
EVENTS = int(os.environ.get("EVENTS", "500"))
KEYS = 20_000
THREADS = (1, 2, 4)
WARM_UP_ROUNDS = 4
"""Each thread plans the small batches of each table itself."""
LIMIT_SECONDS = 120
IDLE_SECONDS, IDLE_CPU_SECONDS = (10.0, 3.0), (1.5, 1.5)
"""Must and goal of a round of IDLE tables, and of the CPU time of a single run for them."""


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    machine_info = machine()
    with benchmark_stack() as bench_stack, spark_bench(bench_stack, fair_scheduling=True) as bench:
        samples = {**busy_rounds(bench), **idle_rounds(bench)}
    report(samples, machine_info)
    return 0


def busy_rounds(bench: SparkBench) -> dict[str, list[float]]:
    """Return the seconds of the rounds for BUSY tables, by measure. Each number of threads has its own tables."""
    samples: dict[str, list[float]] = {}
    with ExitStack() as stack:
        topics = [stack.enter_context(bench.topic(f"bench.busy_{number}", KEYS)) for number in range(BUSY)]
        variants = {threads: _tables(bench, topics, f"busy_{threads}") for threads in THREADS}
        workers = {threads: stack.enter_context(_workers(bench, threads)) for threads in THREADS}
        for topic in topics:
            topic.send_first_events()
        for threads, jobs in variants.items():
            round_seconds(workers[threads], jobs, KEYS)
        for number in range(ROUNDS + WARM_UP_ROUNDS):
            for topic in topics:
                topic.send(EVENTS)
            shift = number % len(THREADS)
            for threads in THREADS[shift:] + THREADS[:shift]:
                bench.clean_up()
                seconds = round_seconds(workers[threads], variants[threads], EVENTS)
                print_progress(f"round {number}, {BUSY} busy tables, threads {threads}: {seconds:.2f} s")
                if number >= WARM_UP_ROUNDS:
                    samples.setdefault(f"busy_{threads}", []).append(seconds)
        for jobs in variants.values():
            for job in jobs:
                bench.drop_table(POSTGRES, job.table)
    return samples


def idle_rounds(bench: SparkBench) -> dict[str, list[float]]:
    """Return the seconds of the rounds for IDLE tables by measure, and the CPU seconds of single runs."""
    samples: dict[str, list[float]] = {"idle_cpu": []}
    with ExitStack() as stack:
        topics = [stack.enter_context(bench.topic(f"bench.idle_{number}", EVENTS)) for number in range(BUSY)]
        for topic in topics:
            topic.send_first_events()
        jobs = _tables(bench, [topics[number % BUSY] for number in range(IDLE)], "idle")
        workers = {threads: stack.enter_context(_workers(bench, threads)) for threads in THREADS}
        round_seconds(workers[THREADS[-1]], jobs, EVENTS)
        for number in range(ROUNDS):
            for threads in THREADS:
                seconds = round_seconds(workers[threads], jobs, 0)
                print_progress(f"round {number}, {IDLE} idle tables, threads {threads}: {seconds:.2f} s")
                samples.setdefault(f"idle_{threads}", []).append(seconds)
            samples["idle_cpu"].append(single_run(jobs))
        for job in jobs:
            bench.drop_table(POSTGRES, job.table)
    return samples


def single_run(jobs: list[MaterializeJob]) -> float:
    """Run the command once in a new process, and return its CPU seconds."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(job_file.as_text(jobs))
        file.flush()
        started = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = Path(sys.executable).with_name("outbox-materialize")
        subprocess.run([command, "--job", file.name], check=True, capture_output=True, timeout=LIMIT_SECONDS)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime - started.ru_utime - started.ru_stime


def round_seconds(workers: Workers[Runner], jobs: list[MaterializeJob], records: int) -> float:
    """Return the duration of a round. Raises RuntimeError if a table has not read the expected number of records."""
    started = time.perf_counter()
    outcomes = [result() for _, result in workers.call({job.table: attempt_of(job) for job in jobs})]
    seconds = time.perf_counter() - started
    for outcome in outcomes:
        if outcome.status is Status.FAILED or outcome.records != records:
            raise RuntimeError(f"{outcome.table}: {outcome.records} records instead of {records}; {outcome.error}")
    return seconds


@contextmanager
def _workers(bench: SparkBench, threads: int) -> Iterator[Workers[Runner]]:
    """Yield what the rounds of --interval use. One thread takes as long as the rounds without a thread."""

    @contextmanager
    def open_runner() -> Iterator[Runner]:
        bench.spark.sparkContext.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)
        with run_session(bench.spark, bench.job(POSTGRES, "bench", "bench")) as session, Clients() as clients:
            yield Runner(session, silent, clients=clients)

    with WorkerThreads(threads, open_runner, threading.Event()) as workers:
        yield workers


def _tables(bench: SparkBench, topics: list[BookTopic], name: str) -> list[MaterializeJob]:
    return [bench.job(POSTGRES, topic.name, f"{name}_{number}") for number, topic in enumerate(topics)]


def report(samples: dict[str, list[float]], machine_info: dict[str, object]) -> None:
    """Publish the medians of all rounds."""
    medians = {name: statistics.median(values) for name, values in samples.items()}
    bounds = [
        Bound("idle_round_s", medians["idle_1"], *IDLE_SECONDS, at_most=True),
        Bound("idle_single_run_cpu_s", medians["idle_cpu"], *IDLE_CPU_SECONDS, at_most=True),
    ]
    content = document(
        machine=machine_info,
        samples=samples,
        measures={name: spread(values) for name, values in samples.items()},
        ratios={f"busy_{threads}_vs_1": medians[f"busy_{threads}"] / medians["busy_1"] for threads in THREADS[1:]},
        values={bound.name: bound.ratio for bound in bounds},
        rounds=ROUNDS,
    )
    rows = [
        [str(threads), *(f"{medians[f'{kind}_{threads}']:.2f}" for kind in ("busy", "idle"))] for threads in THREADS
    ]
    heading = ("threads", f"{BUSY} tables with {EVENTS} new events each, s", f"{IDLE} tables without new events, s")
    publish("many-tables", content, markdown(heading, rows) + bound_table(bounds))


if __name__ == "__main__":
    sys.exit(main())
