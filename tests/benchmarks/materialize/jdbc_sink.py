"""Debezium's JDBC sink on the same topic, with its fastest settings, in the stack's Connect worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import LiteralString

import psycopg
from psycopg.sql import SQL, Identifier
from tests.benchmarks.benchmark_stack import PARTITIONS
from tests.benchmarks.materialize.events import marker_key
from tests.benchmarks.materialize.spark_bench import SparkBench

from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.client import ConnectClient

MARKERS = [marker_key(partition).decode() for partition in range(PARTITIONS)]
POLL_SECONDS = 0.005
LIMIT_SECONDS = 600.0
# The sink fails on the schema's default for an array, so it cannot create the table. Connect represents a timestamp in
# microseconds as a number.
COLUMNS: LiteralString = """
  aggregate_id text primary key, id text, author_id text, title text, subtitle text, tags text[], price numeric(12, 2),
  published_on date, status text, pages integer, updated_at bigint"""
REGISTRY = "value.converter.apicurio.registry"


def drain(bench: SparkBench, topic: str, table: str) -> float:
    """Return the seconds from the first to the last row in the table, excluding the start of the connector."""
    with bench.warehouse() as connection:
        connection.execute(SQL("create table {} ({})").format(Identifier(table), SQL(COLUMNS)))
    with bench.warehouse() as connection, _connector(bench, table, _config(bench, topic, table)):
        _wait(bench, connection, table, 1)
        started = time.perf_counter()
        _wait(bench, connection, table, PARTITIONS)
        return time.perf_counter() - started


@contextmanager
def running(bench: SparkBench, topic: str, table: str) -> Iterator[None]:
    """Create the table, and run the sink during the block. It writes each poll at once, which is its lowest latency."""
    with bench.warehouse() as connection:
        connection.execute(SQL("create table {} ({})").format(Identifier(table), SQL(COLUMNS)))
    with _connector(bench, table, {**_config(bench, topic, table), "consumer.override.fetch.min.bytes": "1"}):
        yield


@contextmanager
def batches(bench: SparkBench, topic: str, table: str) -> Iterator[Callable[[], float]]:
    """Let the sink write the topic, and pause it. Yield a function that resumes it until the records are written.

    The function returns the seconds since the sink was resumed, and pauses the sink again. The last records of the
    topic are the markers of all partitions.
    """
    client = bench.bench_stack.deployment.connect
    name = Identifier(table)

    def run() -> float:
        connection.execute(SQL("delete from {} where aggregate_id = any(%s)").format(name), [MARKERS])
        started = time.perf_counter()
        client.resume(table)
        _wait(bench, connection, table, PARTITIONS)
        seconds = time.perf_counter() - started
        client.pause(table)
        wait_for("the pause of the sink", partial(_paused, client, table), seconds=LIMIT_SECONDS)
        return seconds

    with running(bench, topic, table), bench.warehouse() as connection:
        _wait(bench, connection, table, PARTITIONS)
        client.pause(table)
        wait_for("the pause of the sink", partial(_paused, client, table), seconds=LIMIT_SECONDS)
        yield run


def _paused(client: ConnectClient, name: str) -> Observation[bool]:
    status = client.status(name)
    if status is None:
        return Observation(None, "no status")
    is_paused = {status.connector_state, *status.task_states} == {"PAUSED"}
    return Observation(is_paused or None, status.text)


def _config(bench: SparkBench, topic: str, table: str) -> dict[str, str]:
    """Return the fastest settings. Without the reduction buffer, two events of a key in a batch stop the task."""
    state = bench.state
    address = f"jdbc:postgresql://{state.postgres_host}:{state.postgres_port}/{state.target_database}"
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "2",
        "topics": topic,
        "connection.url": f"{address}?reWriteBatchedInserts=true",
        "connection.username": state.materializer_user,
        "connection.password": state.materializer_password,
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "none",
        "collection.name.format": table,
        "batch.size": "5000",
        "use.reduction.buffer": "true",
        "consumer.override.max.poll.records": "5000",
        "consumer.override.fetch.min.bytes": "1000000",
        "consumer.override.max.partition.fetch.bytes": str(8 << 20),
        "consumer.override.isolation.level": "read_committed",
        # The sink requires a Struct as key.
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "transforms": "key",
        "transforms.key.type": "org.apache.kafka.connect.transforms.HoistField$Key",
        "transforms.key.field": "aggregate_id",
        "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
        f"{REGISTRY}.url": state.registry.replace("/apis/ccompat/v7", "/apis/registry/v2"),
        f"{REGISTRY}.as-confluent": "true",
        f"{REGISTRY}.use-id": "contentId",
        f"{REGISTRY}.headers.enabled": "false",
        f"{REGISTRY}.check-period-ms": "2147483647",
    }


@contextmanager
def _connector(bench: SparkBench, name: str, config: dict[str, str]) -> Iterator[None]:
    client = bench.bench_stack.deployment.connect
    client.create_stopped(name, config)
    connect_lifecycle.wait_stopped(client, name)
    client.resume(name)
    try:
        yield
    finally:
        connect_lifecycle.remove(client, name)


def _wait(bench: SparkBench, connection: psycopg.Connection[tuple[object, ...]], table: str, expected: int) -> None:
    """Wait until the table has a row (`expected` is 1), or the marker of each partition (PARTITIONS)."""
    query = SQL("select count(*) from (select 1 from {} {} limit %s) matches")
    name = Identifier(table)
    statement = query.format(name, SQL("") if expected == 1 else SQL("where aggregate_id = any(%s)"))
    values: list[object] = [expected] if expected == 1 else [MARKERS, expected]
    deadline = time.perf_counter() + LIMIT_SECONDS
    checked = time.perf_counter()
    while True:
        row = connection.execute(statement, values).fetchone()
        if row is not None and row[0] == expected:
            return
        now = time.perf_counter()
        if now > deadline:
            raise RuntimeError(f"{table}: the sink has not written all records after {LIMIT_SECONDS:g} s")
        if now - checked > 1:
            bench.bench_stack.raise_if_failed(table)
            checked = now
        time.sleep(POLL_SECONDS)
