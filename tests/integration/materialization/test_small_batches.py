"""Rounds use one session and the same connections, and small batches of a table reuse a plan."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import SparkSession
from tests.integration.materialization.warehouse import warehouse
from tests.spark.kafka_log import Schemas, framed, sequence

from outbox_events.errors import ConfigurationError, RefusedError, UnreachableError
from outbox_events.http_session import HttpEndpoint
from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack import StackState
from outbox_spark.jobs.model import MaterializeJob, MaterializeOptions, Outcome
from outbox_spark.kafka.offset_ranges import describe
from outbox_spark.kafka.record_reader import SMALL_OFFSETS
from outbox_spark.runs.clients import Clients
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.runs.prepared_rows import PreparedRows
from outbox_spark.session.run_session import run_session

NAME, TABLE = "small.batches", "small_batches"
FIELD = {"name": "n", "type": "int"}
SCHEMAS = {
    1: {"type": "record", "name": "Thing", "fields": [FIELD]},
    2: {"type": "record", "name": "Thing", "fields": [FIELD, {"name": "m", "type": "int", "default": 0}]},
}

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class Table:
    """A topic, the expected rows, and a table that a run after each group of records updates."""

    def __init__(self, spark: SparkSession, state: StackState) -> None:
        self.kafka = {"bootstrap.servers": state.kafka}
        self.admin = AdminClient(dict(self.kafka))
        self.add_partitions(2)
        self.expected: dict[str, int] = {}
        self.clients, self.prepared, self.reports = Clients(), PreparedRows(), list[str]()
        self.schemas = Schemas(SCHEMAS, newest=1)
        self.spark, self.dsn, self._commit = spark, state.target, 0
        target = warehouse(state, f"small_{uuid4().hex[:8]}")
        self._schema = target.schema
        registry, options = HttpEndpoint(url="http://127.0.0.1:1"), MaterializeOptions(max_quarantined=10)
        self.job = MaterializeJob("thing", NAME, TABLE, self.kafka, registry, "warehouse", target, options)

    def add_partitions(self, count: int) -> None:
        """Create the topic, or add partitions to it."""
        if count == 2:
            self.admin.create_topics([NewTopic(NAME, count, 1)])[NAME].result(30)
        else:
            self.admin.create_partitions([NewPartitions(NAME, count)])[NAME].result(30)
        wait_for(f"{count} partitions of {NAME}", lambda: self._has_partitions(count), seconds=30)
        self._producer = Producer({**self.kafka, "linger.ms": 5})  # which knows all partitions

    def _has_partitions(self, count: int) -> Observation[bool]:
        try:
            actual = len(describe(self.kafka, NAME).end_offsets)
        except (ConfigurationError, UnreachableError) as error:
            return Observation(None, str(error))
        return Observation(True if actual == count else None, f"{actual} partitions")

    def put(self, key: str, number: int | None, partition: int = 0) -> None:
        """Send a state, or a tombstone if `number` is None."""
        version = self.schemas.newest
        value = {"n": number} if version == 1 else {"n": number, "m": number}
        self.send(key, None if number is None else framed(SCHEMAS[version], version, value), partition)
        self.expected.pop(key, None)
        if number is not None:
            self.expected[key] = number

    def send(self, key: str, value: bytes | None, partition: int = 0) -> None:
        self._commit += 1
        header = [("source_sequence", sequence(self._commit))]
        self._producer.produce(NAME, value, key, partition, headers=header)  # type: ignore[arg-type]

    def run(self) -> Outcome:
        """Materialize the topic like a round of `--interval`."""
        assert self._producer.flush(30) == 0
        topic = dataclasses.replace(
            self.clients.topic(self.spark, self.job),
            open_registry=lambda: nullcontext(self.schemas),  # type: ignore[return-value, arg-type]
        )
        return materialize(
            self.spark, self.job, self.reports.append, topic=topic, clients=self.clients, prepared=self.prepared
        )

    def recreate_topic(self) -> None:
        """Delete the topic, and create it with other records."""
        self.admin.delete_topics([NAME])[NAME].result(30)
        wait_for("the deletion of the topic", lambda: Observation(not self._has_topic() or None, "exists"), seconds=30)
        self.add_partitions(2)

    def _has_topic(self) -> bool:
        return NAME in self.admin.list_topics(timeout=10).topics

    def rows(self) -> dict[str, int]:
        with psycopg.connect(self.dsn) as connection:
            return dict(connection.execute(f'select aggregate_id, n from "{self._schema}".{TABLE}').fetchall())

    def drop(self) -> None:
        self.admin.delete_topics([NAME])[NAME].result(30)
        self.execute(f'drop schema if exists "{self._schema}" cascade')

    def drop_table(self) -> None:
        self.execute(f'drop table "{self._schema}".{TABLE}')
        self.expected.clear()

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.dsn) as connection:
            connection.execute(statement)  # type: ignore[arg-type]


@pytest.fixture
def table(spark: SparkSession, state: StackState) -> Iterator[Table]:
    created = Table(spark, state)
    with run_session(spark, created.job) as created.spark, created.clients:
        yield created
    created.drop()


def test_each_batch_reads_its_own_range(table: Table) -> None:
    plans: list[Any] = []

    def run(**counts: int) -> None:
        outcome = table.run()
        assert {name: getattr(outcome, name) for name in counts} == counts
        assert table.rows() == table.expected
        plans.append(table.prepared.rows)

    table.put("a", 1)
    table.put("b", 1, partition=1)
    run(records=2, upserts=2)
    table.put("a", 2)
    table.put("b", None, partition=1)
    run(records=2, upserts=1, deletes=1)
    for number in range(5):
        table.put("c", number)
    run(records=5, keys=1, upserts=1)
    run(records=0)
    assert plans.count(plans[0]) == len(plans)
    assert [report for report in table.reports if "cleanup.policy" in report] == table.reports[1:2]

    table.schemas.newest = 2
    table.put("d", 1)
    run(records=1, upserts=1)
    assert plans[-1] is not plans[0]
    table.send("a", b"unreadable")
    table.put("e", 1, partition=1)
    run(records=2, upserts=1, quarantined=1)
    table.add_partitions(3)
    table.put("a", 3)
    table.put("f", 1, partition=2)
    run(records=2, upserts=2)
    for number in range(SMALL_OFFSETS + 1):
        table.put(f"key {number % 7}", number)
    run(records=SMALL_OFFSETS + 1, upserts=7)
    table.put("a", 4)
    run(records=1, upserts=1)


def test_only_the_first_rounds_plan_a_query(table: Table) -> None:
    def planned() -> list[str]:
        """Return the rules of the analyzer and optimizer that a round applies."""
        table.put("a", 1)
        rules.resetMetrics()
        assert table.run().records == 1
        return re.findall(r"^org\.apache\.spark\.sql\.(?!catalyst\.expressions\.)\S+", rules.dumpTimeSpent(), re.M)

    rules: Any = table.spark._jvm.org.apache.spark.sql.catalyst.rules.RuleExecutor  # type: ignore[union-attr]
    assert planned()
    planned()  # the first run with an existing table
    assert planned() == []


def test_rounds_use_their_connections_again(table: Table) -> None:
    def pid() -> int:
        connection = table.clients.postgres.take(table.job.target)  # type: ignore[arg-type]
        table.clients.postgres.put(table.job.target, connection)  # type: ignore[arg-type]
        return connection.info.backend_pid

    table.put("a", 1)
    table.run()
    first = pid()
    table.put("a", 2)
    table.run()
    assert pid() == first
    with psycopg.connect(table.dsn) as connection:
        locks = "select count(*) from pg_locks where locktype = 'advisory' and pid = %s"
        assert connection.execute(locks, [first]).fetchone() == (0,)
    table.execute(f"select pg_terminate_backend({first}, 10000)")
    table.put("a", 3)
    table.run()
    assert pid() != first
    assert table.rows() == {"a": 3}


def test_rounds_read_a_topic_that_was_created_again(table: Table) -> None:
    for number in range(3):
        table.put("a", number)
    table.run()
    table.recreate_topic()
    table.put("b", 1)
    with pytest.raises(RefusedError, match="was deleted and recreated"):
        table.run()
    table.drop_table()
    table.put("b", 2)
    table.run()
    assert table.rows() == table.expected == {"b": 2}
