"""Meters of the sending benchmark: arrivals at a consumer, statements, and sizes of tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import LiteralString, Self

from confluent_kafka import Consumer, TopicPartition
from tests.conftest import REPOSITORY

from outbox_events.waiting import Observation, wait_for
from outbox_kit.kafka.client import client_settings
from outbox_kit.pipeline import Kafka
from outbox_kit.results import Reporter
from outbox_lab.drill.project import PARTITIONS, DrillProject
from outbox_lab.drill.proxy import Proxy
from outbox_lab.drill.spark_job import SparkJob
from outbox_lab.drill.stack import DrillStack

START_SHARE = 0.05
ARRIVAL_S = 900
SERVER_SETTINGS: tuple[LiteralString, ...] = (
    "alter system set shared_preload_libraries = pg_stat_statements",
    "alter system set autovacuum = off",
)
STATEMENTS: LiteralString = """
    select coalesce(sum(calls), 0)::bigint from pg_stat_statements
    where dbid = (select oid from pg_database where datname = current_database())"""
TABLE_BYTES: LiteralString = """
    select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema')
      and (n.nspname, c.relname) not in (('drill', 'account'), ('drill', 'entry'))"""


class SendingProject(DrillProject):
    """A project that is separate from the project of `python -m outbox_lab.drill`."""

    @property
    def folder(self) -> Path:
        return self.project_folder / "build" / "bench" / "sending"


class Arrivals:
    """Counts the records of a topic in a thread, as a read_committed consumer, during a `with` block."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        settings = {"group.id": "outbox-bench", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = Consumer({**client_settings(kafka), **settings, "fetch.wait.max.ms": 20})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._observed: list[tuple[float, int]] = [(time.perf_counter(), 0)]
        self._stop = Flag()
        self._thread = Thread(target=self._run, name="arrivals", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with closing(self._consumer):
            while not self._stop.is_set():
                count = sum(message.error() is None for message in self._consumer.consume(500, 0.05))
                if count:
                    self._observed.append((time.perf_counter(), self.count + count))

    @property
    def count(self) -> int:
        """Number of records so far."""
        return self._observed[-1][1]

    def wait(self, count: int) -> float:
        """Wait until `count` records have arrived; return the time of the last arrival."""
        wait_for(
            "the records",
            lambda: Observation(self.count >= count or None, f"{self.count} of {count} records"),
            seconds=ARRIVAL_S,
            interval=0.1,
        )
        return self._observed[-1][0]

    def rate(self, count: int) -> float:
        """Wait for `count` records. Return the records per second from START_SHARE of them to the last record."""
        end = self.wait(count)
        start, first = [entry for entry in self._observed if entry[1] <= START_SHARE * count][-1]
        return (self.count - first) / (end - start)


class Statements:
    """Statements of all sessions since the start of this object, according to pg_stat_statements."""

    def __init__(self, drill: DrillStack) -> None:
        self._drill, self._start = drill, 0
        self._start = self.count()

    def count(self) -> int:
        """Return the number of statements, including BEGIN and COMMIT but not commands of replication connections."""
        return _number(self._drill, STATEMENTS) - self._start


def _number(drill: DrillStack, query: LiteralString) -> int:
    with drill.connect_to_database() as connection:
        return int(str(connection.execute(query).fetchall()[0][0]))


@contextmanager
def sending_stack(progress: Reporter) -> Iterator[DrillStack]:
    """Start the stack of the drill without its proxy, with pg_stat_statements and without autovacuum."""
    project = SendingProject(REPOSITORY)
    with project.running_stack(progress) as (stack, state):
        project.write_environment(state.postgres_port)
        proxy = Proxy(state.postgres_port)
        proxy.port = state.postgres_port
        drill = DrillStack(project, stack, state, proxy, SparkJob(project), progress)
        drill.logs.mkdir(parents=True, exist_ok=True)
        with drill.connect_to_database() as connection:
            for statement in SERVER_SETTINGS:
                connection.execute(statement)
        drill.services["postgres"].restart()
        with drill.connect_to_database() as connection:
            connection.execute("create extension pg_stat_statements")
        yield drill


def table_bytes(drill: DrillStack) -> int:
    """Return the size of all tables except the business tables, including indexes."""
    return _number(drill, TABLE_BYTES)


def vacuum(drill: DrillStack) -> None:
    """Run VACUUM on all tables."""
    with drill.connect_to_database() as connection:
        connection.execute("vacuum")
