"""Debezium's JDBC sink on the same topic, at its best settings, in the stack's Connect worker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

import psycopg
from psycopg.sql import SQL, Identifier
from tests.benchmarks.materialize.events import marker_key
from tests.benchmarks.materialize.place import Place
from tests.benchmarks.stage import PARTITIONS

from outbox_kit.connect import lifecycle as connect_lifecycle

EVERY_SECONDS = 0.05
LIMIT_SECONDS = 600.0
# The sink's own table has no place for the array: it stops at the schema's default for one. Microseconds since 1970 are
# a number to Connect.
COLUMNS: LiteralString = """
  aggregate_id text primary key, id text, author_id text, title text, subtitle text, tags text[], price numeric(12, 2),
  published_on date, status text, pages integer, updated_at bigint"""
REGISTRY = "value.converter.apicurio.registry"


def drain(here: Place, topic: str, table: str) -> float:
    """Seconds from the first row that the table shows to the last; so the connector's start is left out."""
    with here.warehouse() as connection:
        connection.execute(SQL("create table {} ({})").format(Identifier(table), SQL(COLUMNS)))
    with here.warehouse() as connection, _connector(here, table, _config(here, topic, table)):
        _wait(here, connection, table, 1)
        started = time.perf_counter()
        _wait(here, connection, table, PARTITIONS)
        return time.perf_counter() - started


def _config(here: Place, topic: str, table: str) -> dict[str, str]:
    """Settings that were found best: without the reduction buffer two events of a key in a batch stop the task."""
    state = here.state
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
        # The sink wants a struct as key.
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
def _connector(here: Place, name: str, config: dict[str, str]) -> Iterator[None]:
    client = here.stage.deployment.connect
    client.create_stopped(name, config)
    connect_lifecycle.wait_stopped(client, name)
    client.resume(name)
    try:
        yield
    finally:
        connect_lifecycle.remove(client, name)


def _wait(here: Place, connection: psycopg.Connection[tuple[object, ...]], table: str, wanted: int) -> None:
    """Until the table has a row (1), or the last record of each partition (PARTITIONS)."""
    query = SQL("select count(*) from (select 1 from {} {} limit %s) found")
    name = Identifier(table)
    markers = [marker_key(partition).decode() for partition in range(PARTITIONS)]
    look = query.format(name, SQL("") if wanted == 1 else SQL("where aggregate_id = any(%s)"))
    values: list[object] = [wanted] if wanted == 1 else [markers, wanted]
    deadline = time.perf_counter() + LIMIT_SECONDS
    checked = time.perf_counter()
    while True:
        row = connection.execute(look, values).fetchone()
        if row is not None and row[0] == wanted:
            return
        now = time.perf_counter()
        if now > deadline:
            raise RuntimeError(f"{table}: the sink has not reached the end after {LIMIT_SECONDS:g} s")
        if now - checked > 1:
            here.stage.refuse_failed(table)
            checked = now
        time.sleep(EVERY_SECONDS)
