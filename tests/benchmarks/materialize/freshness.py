#!/usr/bin/env python3
"""Time from the commit of an event to the visible row of its aggregate, beside other ways to write the rows.

The other ways are Debezium's JDBC sink and a plain job of Structured Streaming, which write to PostgreSQL. Each event
has an aggregate of its own, so that each row becomes visible once. The connector of outbox-kit sends the events to a
topic of each variant. Settings: ROUNDS, SECONDS (per rate and round). See docs/performance-batches.md, "Freshness".
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from confluent_kafka import Consumer, Message, TopicPartition
from psycopg.errors import UndefinedTable
from psycopg.sql import SQL, Identifier
from tests.benchmarks import backlog, variants
from tests.benchmarks.benchmark_stack import PARTITIONS, PLUGINS, benchmark_stack, print_progress
from tests.benchmarks.latency import Samples, percentile
from tests.benchmarks.latency_writer import Written, write
from tests.benchmarks.materialize import jdbc_sink
from tests.benchmarks.materialize.spark_bench import POSTGRES, SparkBench, spark_bench
from tests.benchmarks.materialize.variants import naive_stream
from tests.benchmarks.report import Bound, bound_table, document, machine, markdown, publish

from outbox_events.waiting import Observation, wait_for
from outbox_kit.kafka.client import client_settings
from outbox_kit.results import silent
from outbox_spark.jobs.model import MaterializeJob, Outcome
from outbox_spark.runs.clients import Clients
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.runs.prepared_rows import PreparedRows
from outbox_spark.session.run_session import run_session
from outbox_spark.sinks.postgres.connection import scalar

ROUNDS = int(os.environ.get("ROUNDS", "1"))
SECONDS = float(os.environ.get("SECONDS", "60"))
RATES = (200, 1000)
WARM_UP_SECONDS = min(15.0, SECONDS)
ARRIVE_SECONDS = 120
POLL_SECONDS = 0.02
OVERLAP_PAGES = 500
"""Number of pages that are read again, because transactions that are open at the same time insert into nearby pages."""
OLDEST_OPEN = "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
# The server returns only rows that the previous query cannot have seen, because returning and parsing all rows of the
# pages would keep a core busy.
NEW_ROWS = SQL("select aggregate_id, ctid::text from {} where ctid > %s::tid and xmin::text::bigint >= %s")
SPAWN = multiprocessing.get_context("spawn")  # librdkafka does not support fork
Visible = Callable[[], dict[str, int]]
"""Returns the time at which each row became visible, by aggregate id, for the rows that are visible so far."""
Writing = Callable[[SparkBench, str, str], AbstractContextManager[Visible]]
"""Writes a topic (first argument) to a table (second argument) during the block."""


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    machine_info = machine()
    samples: dict[tuple[str, int], Samples] = defaultdict(Samples)
    with benchmark_stack(plugins=(PLUGINS,)) as stack, spark_bench(stack) as bench, SPAWN.Pool(1) as writers:
        with stack.database() as connection:
            backlog.prepare(connection)
            # After a vacuum, rows are inserted into earlier pages with free space, which the observer does not read.
            connection.execute("alter system set autovacuum_vacuum_insert_threshold = -1")
            connection.execute("select pg_reload_conf()")
        # In a young JVM, rounds and micro-batches take several times as long, so a first round is not measured.
        for number in range(ROUNDS + 1):
            seconds = SECONDS if number else WARM_UP_SECONDS
            for index, (name, writing) in enumerate(WRITING.items()):
                measured = measure(bench, writers.apply, f"{index}_{number}", writing, seconds)
                for rate, (written, visible) in measured.items() if number else ():
                    samples[name, rate].add(written, visible)
                    values = sorted(samples[name, rate].rounds[-1])
                    p50, p99 = (percentile(values, share) / 1000 for share in (0.5, 0.99))
                    print_progress(f"{name} at {rate} tx/s: p50 {p50:.2f} s, p99 {p99:.2f} s")
    report(samples, machine_info)
    return 0


def measure(
    bench: SparkBench, run: Callable[..., list[Written]], name: str, writing: Writing, seconds: float
) -> dict[int, tuple[list[Written], dict[str, int]]]:
    """Return, by rate, the written events and the times at which the rows of all events were visible."""
    stack, table = bench.bench_stack, f"fresh_{name}"
    results = {}
    with bench.topic(f"bench.{table}", 1) as topic, stack.slot(table) as lsn:
        config = {**variants.outbox_router(stack, topic.name), "slot.name": table}
        connector = stack.connector(f"bench-{table}", config, lsn)
        with connector, writing(bench, topic.name, table) as visible:
            for rate in RATES:
                wait(visible, run(write, (stack.state.postgres, rate, WARM_UP_SECONDS)))
                written = run(write, (stack.state.postgres, rate, seconds))
                wait(visible, written)
                results[rate] = written, dict(visible())
    for kind in bench.kinds():
        bench.drop_table(kind, table)
    return results


def wait(visible: Visible, written: list[Written]) -> None:
    """Wait until the rows of all events are visible. Raises WaitTimeoutError."""

    def poll() -> Observation[bool]:
        times = visible()
        missing = sum(entry.event not in times for entry in written)
        return Observation(None if missing else True, f"{missing} of {len(written)} rows are missing")

    wait_for("every row", poll, seconds=ARRIVE_SECONDS)


@contextmanager
def observing(bench: SparkBench, table: str) -> Iterator[Visible]:
    """Look for new rows of a PostgreSQL table in another session."""
    seen: dict[str, int] = {}
    stop = threading.Event()

    def observe() -> None:
        page, oldest_open = 0, 0
        query = NEW_ROWS.format(Identifier(table))
        with bench.warehouse() as connection:
            while not stop.wait(POLL_SECONDS):
                next_oldest = scalar(connection, OLDEST_OPEN)
                try:
                    rows = connection.execute(query, (f"({max(0, page - OVERLAP_PAGES)},0)", oldest_open)).fetchall()
                except UndefinedTable:
                    continue
                now, oldest_open = time.monotonic_ns(), next_oldest
                for key, place in rows:
                    page = max(page, int(str(place)[1:].partition(",")[0]))
                    seen.setdefault(str(key), now)

    thread = threading.Thread(target=observe)
    thread.start()
    try:
        yield lambda: seen
    finally:
        stop.set()
        thread.join()


class ObservedRounds:
    """Rounds that return after the commit of the table. A row counts as visible when its round has returned.

    The topic is read only when the result is requested, which is after the measurement.
    """

    def __init__(self, bench: SparkBench, topic: str) -> None:
        self._ends: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self._returned: list[int] = []
        self._seen: dict[str, int] = {}
        self._consumer = Consumer(
            {
                **client_settings(bench.bench_stack.deployment.environment.kafka),
                "group.id": "bench-freshness",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in self._ends])
        self._unseen: list[Message] = []

    def add(self, outcome: Outcome) -> None:
        """Record that a round has returned."""
        self._returned.append(time.monotonic_ns())
        for partition, ends in self._ends.items():
            ends.append(outcome.offsets_to.get(partition, 0))

    def visible(self) -> dict[str, int]:
        """Return the time of each row that a round has written."""
        while messages := self._consumer.consume(10_000, timeout=0.5):
            self._unseen += messages
        returned, unseen, self._unseen = len(self._returned), self._unseen, []
        for message in unseen:
            ends = self._ends[message.partition()][:returned]
            index = bisect_right(ends, message.offset())
            if index < returned:
                self._seen[message.key().decode()] = self._returned[index]
            else:
                self._unseen.append(message)
        return self._seen


@contextmanager
def rounds(
    bench: SparkBench, job: MaterializeJob, on_round: Callable[[Outcome], None] = lambda _: None
) -> Iterator[None]:
    """Run rounds as `outbox-materialize` does with the smallest --interval."""
    stop, failed = threading.Event(), list[Exception]()
    materialize(bench.spark, job, silent)  # creates the table

    def repeat() -> None:
        try:
            with run_session(bench.spark, job) as session, Clients() as clients:
                prepared = PreparedRows()
                while not stop.is_set():
                    on_round(materialize(session, job, silent, clients=clients, prepared=prepared))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


@contextmanager
def to_postgres(bench: SparkBench, topic: str, table: str) -> Iterator[Visible]:
    """Write to PostgreSQL with rounds of outbox-materialize."""
    with rounds(bench, bench.job(POSTGRES, topic, table)), observing(bench, table) as visible:
        yield visible


@contextmanager
def to_lake(kind: str, bench: SparkBench, topic: str, table: str) -> Iterator[Visible]:
    """Write to a Delta or Iceberg table with rounds of outbox-materialize."""
    observed = ObservedRounds(bench, topic)
    with rounds(bench, bench.job(kind, topic, table), observed.add):
        yield observed.visible


@contextmanager
def foreach_batch(bench: SparkBench, topic: str, table: str) -> Iterator[Visible]:
    """Write with a plain job of Structured Streaming."""
    with tempfile.TemporaryDirectory() as folder, observing(bench, table) as visible:
        query = naive_stream(bench, bench.job(POSTGRES, topic, table), folder)
        try:
            yield visible
        finally:
            query.stop()


@contextmanager
def sink(bench: SparkBench, topic: str, table: str) -> Iterator[Visible]:
    """Write with Debezium's JDBC sink."""
    with jdbc_sink.running(bench, topic, table), observing(bench, table) as visible:
        yield visible


OWN = "outbox-materialize"
WRITING: dict[str, Writing] = {
    OWN: to_postgres,
    f"{OWN}, delta": partial(to_lake, "delta"),
    f"{OWN}, iceberg": partial(to_lake, "iceberg"),
    "foreachBatch": foreach_batch,
    "jdbc-sink": sink,
}


def report(samples: dict[tuple[str, int], Samples], machine_info: dict[str, object]) -> None:
    """Publish the percentiles of all rounds."""
    figures = {
        (name, rate): [percentile(cell.all, share) / 1000 for share in (0.5, 0.99)] + [cell.all[-1] / 1000]
        for (name, rate), cell in samples.items()
    }
    own = [figures[OWN, rate] for rate in RATES]
    bounds = [
        Bound("freshness_p50_s", max(p50 for p50, _, _ in own), 1.5, 0.7, at_most=True),
        Bound("freshness_p99_s", max(p99 for _, p99, _ in own), 4.0, 2.0, at_most=True),
    ]
    measures = {
        f"{name}_{rate}": dict(zip(("p50_s", "p99_s", "max_s"), values, strict=True))
        for (name, rate), values in figures.items()
    }
    content = document(
        machine=machine_info,
        samples={f"{name}_{rate}": cell.rounds for (name, rate), cell in samples.items()},
        measures=measures,
        ratios={bound.name: bound.ratio for bound in bounds},
        values={},
        rounds=ROUNDS,
        seconds=SECONDS,
    )
    heading = ("tx/s", "variant", "p50 s", "p99 s", "max s")
    rows = [[f"{rate:,}", name, *(f"{value:.2f}" for value in values)] for (name, rate), values in figures.items()]
    publish("freshness", content, markdown(heading, rows) + bound_table(bounds))


if __name__ == "__main__":
    sys.exit(main())
