"""Environment of the materialization benchmark: a stack, topics, a warm Spark session, targets of every kind.

with spark_bench(bench_stack) as bench, bench.topic("bench.book_1", keys) as topic:
    materialize(bench.spark, bench.job("postgres", topic.name, "book_1"), ...)
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from tests.benchmarks.benchmark_stack import PARTITIONS, BenchmarkStack
from tests.benchmarks.materialize.events import Books, Sender
from tests.conftest import REPOSITORY
from tests.integration.materialization.warehouse import warehouse

from outbox_events.http_session import HttpEndpoint
from outbox_kit.stack import StackState
from outbox_spark.jobs.model import (
    DeltaTarget,
    IcebergTarget,
    MaterializeJob,
    Target,
)
from outbox_spark.session.spark_session import start_session

GC_LOG = REPOSITORY / "build" / "bench" / "materialize-gc.log"
POSTGRES = "postgres"
SUBJECT = "bench.book-value"


@dataclass(frozen=True)
class SparkBench:
    """A running stack and a Spark session with the launchers' settings. `folder` contains the lake tables."""

    bench_stack: BenchmarkStack
    spark: SparkSession
    folder: Path

    @property
    def state(self) -> StackState:
        return self.bench_stack.state

    def kinds(self) -> list[str]:
        """Return the kinds of target."""
        return list(targets(self.state, self.folder))

    def job(self, kind: str, topic: str, table: str) -> MaterializeJob:
        """Return a job of a topic that topic() created."""
        return job_for(self.state, targets(self.state, self.folder)[kind], topic, table)

    @contextmanager
    def topic(self, name: str, keys: int) -> Iterator[BookTopic]:
        """Create a topic with its subject, and yield the topic with its books."""
        registry = self.bench_stack.deployment.registry
        declared = registry.latest(SUBJECT)
        assert declared is not None
        registry.register(f"{name}-value", declared.text)
        registered = registry.latest(f"{name}-value")
        assert registered is not None
        with self.bench_stack.topic(name) as topic:
            yield BookTopic(self.bench_stack, topic, Books(keys, registered.id))

    def warehouse(self) -> psycopg.Connection[tuple[object, ...]]:
        """Open an autocommit connection to the target database as its owner."""
        return psycopg.connect(self.state.target, autocommit=True)

    def count(self, table: str) -> int:
        """Return the number of rows of a PostgreSQL table."""
        with self.warehouse() as connection:
            row = connection.execute(SQL("select count(*) from {}").format(Identifier(table))).fetchone()
        assert row is not None
        return int(str(row[0]))

    def drop_table(self, kind: str, table: str) -> None:
        """Drop a table and its companion tables, so that they do not fill the disk and the caches."""
        if kind != POSTGRES:
            for path in self.folder.glob(f"**/{table}*"):
                shutil.rmtree(path, ignore_errors=True)
            return
        with self.warehouse() as connection:
            actual = connection.execute(
                "select tablename from pg_tables where schemaname = 'public' and starts_with(tablename, %s)", [table]
            ).fetchall()
            for (name,) in actual:
                connection.execute(SQL("drop table {}").format(Identifier(str(name))))
            with suppress(psycopg.errors.UndefinedTable):  # no job has run yet
                connection.execute("delete from outbox_offsets where table_name = %s", [table])

    @property
    def spark_pid(self) -> int:
        """Pid of the JVM, which is both driver and executor."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        return int(jvm.java.lang.ProcessHandle.current().pid())

    def clean_up(self) -> None:
        """Run the JVM's garbage collector and a checkpoint, so that a sample does not affect the next one."""
        self.collect_garbage()
        self.checkpoint()

    def collect_garbage(self) -> None:
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        jvm.java.lang.System.gc()

    def checkpoint(self) -> None:
        """Run a checkpoint, after which the first change of each page writes the whole page to the WAL."""
        with self.bench_stack.database() as connection:
            connection.execute("checkpoint")

    def disable_timed_checkpoints(self) -> None:
        """Let the server run no checkpoint by itself for an hour."""
        with self.bench_stack.database() as connection:
            connection.execute("alter system set checkpoint_timeout = '1h'")
            connection.execute("alter system set max_wal_size = '20GB'")
            connection.execute("select pg_reload_conf()")


@dataclass(frozen=True)
class BookTopic:
    """A topic and the books whose events it contains."""

    bench_stack: BenchmarkStack
    name: str
    books: Books

    def send_first_events(self) -> None:
        """Send one event for each book."""
        with self._sender() as sender:
            sender.send(self.books.first_events())

    def send(self, count: int) -> None:
        """Send a number of events of random books."""
        with self._sender() as sender:
            sender.send(self.books.events(count))

    def send_markers(self) -> None:
        """Send the last record of each partition (see Books.markers)."""
        with self._sender() as sender:
            for partition, event in enumerate(self.books.markers(PARTITIONS)):
                sender.send_to(partition, *event)

    def _sender(self) -> Sender:
        return Sender(self.bench_stack.deployment.environment.kafka, self.name)


@contextmanager
def spark_bench(bench_stack: BenchmarkStack, *, fair_scheduling: bool = False) -> Iterator[SparkBench]:
    """Start Spark as the launchers do (see start_session), on two cores, with the collector's log in build/bench."""
    GC_LOG.parent.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("SPARK_MASTER", "local[2]")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-Xlog:gc:file={GC_LOG}")
    spark = start_session("outbox-bench", fair_scheduling=fair_scheduling)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with tempfile.TemporaryDirectory(prefix="outbox-bench-lake-", ignore_cleanup_errors=True) as folder:
            yield SparkBench(bench_stack, spark, Path(folder))
    finally:
        spark.stop()


def targets(state: StackState, folder: Path) -> dict[str, Target]:
    """Return one target of each kind."""
    return {
        POSTGRES: warehouse(state),
        "delta": DeltaTarget(str(folder / "delta")),
        "iceberg": IcebergTarget("bench", {"type": "hadoop", "warehouse": str(folder / "iceberg")}),
    }


def job_for(state: StackState, target: Target, topic: str, table: str) -> MaterializeJob:
    """Return the job that a pipeline file with this topic and table would produce."""
    return MaterializeJob(
        aggregate="book",
        topic=topic,
        table=table,
        kafka={"bootstrap.servers": state.kafka},
        registry=HttpEndpoint(state.registry),
        target_name="bench",
        target=target,
    )
