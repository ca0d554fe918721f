"""Template sink-jdbc with Debezium's JDBC sink, in a separate stack that has this plugin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer
from tests.benchmarks.benchmark_stack import NAME, PLUGINS, BenchmarkStack, benchmark_stack
from tests.integration.support import read_all

from outbox_events import Deliveries
from outbox_events.contract.partitioner import partition_of
from outbox_events.kafka.record import PRODUCER_SETTINGS, Record
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import lifecycle
from outbox_kit.encoding import OutboxRow, RecordEncoder

pytestmark = [pytest.mark.long, pytest.mark.skipif(not PLUGINS.is_dir(), reason="run `make build/stamps/jdbc-sink`")]

SINK = "bench-sink"
FIRST, SECOND = str(uuid4()), str(uuid4())
CREATE = """
    create table bench_book (
      aggregate_id text primary key, id text, author_id text, title text, subtitle text, tags text[],
      price numeric(12, 2), published_on date, status text, pages integer, updated_at bigint)"""


def record(bench: BenchmarkStack, book: str, title: str | None) -> Record:
    """Return the record of a book, which is a tombstone if it has no title."""
    payload = {
        "id": book,
        "author_id": book,
        "title": title,
        "subtitle": None,
        "tags": ["history"],
        "price": 12.5,
        "published_on": "1969-03-01",
        "status": "AVAILABLE",
        "pages": 286,
        "updated_at": "2026-11-20T18:31:38.123456+00:00",
    }
    lock = bench.deployment.lock()
    assert lock is not None
    row = OutboxRow(
        id=str(uuid4()),
        aggregate_type="book",
        aggregate_id=book,
        event_type="book_changed",
        payload=None if title is None else json.dumps(payload),
        event_time="2026-11-20T18:31:38.123456Z",
    )
    return RecordEncoder(bench.deployment.pipeline, lock, partition_of).encode(row, f"0001_{0:016x}-{0:016x}")


def send(bench: BenchmarkStack, *records: Record) -> None:
    deliveries = Deliveries(Producer({"bootstrap.servers": bench.state.kafka, **PRODUCER_SETTINGS}))
    for entry in records:
        deliveries.send(entry)
    deliveries.wait()


@contextmanager
def sink(bench: BenchmarkStack) -> Iterator[None]:
    """Run the connector of the template."""
    state, client = bench.state, bench.deployment.connect
    url = f"jdbc:postgresql://{state.postgres_host}:{state.postgres_port}/{state.target_database}"
    placeholders = {
        "connection.url": url,
        "connection.username": state.materializer_user,
        "connection.password": state.materializer_password,
    }
    client.create_stopped(SINK, {**bench.config("sink-jdbc"), **placeholders})
    lifecycle.wait_stopped(client, SINK)
    client.resume(SINK)
    try:
        yield
    finally:
        lifecycle.remove(client, SINK)


def wait_titles(bench: BenchmarkStack, connection: psycopg.Connection, expected: dict[str, str]) -> None:
    def poll() -> Observation[bool]:
        bench.raise_if_failed(SINK)
        titles = dict(connection.execute("select aggregate_id, title from bench_book").fetchall())
        return Observation(titles == expected or None, f"{titles}")

    wait_for("the rows of the sink", poll, seconds=60, interval=0.2)


def dead_letters(bench: BenchmarkStack) -> list[bytes | None]:
    topic = f"{NAME}.sink-dead-letter"
    return [message.key() for message in read_all(bench.deployment.environment.kafka, topic, 1)]


def test_upserts_deletes_and_diverts_undecodable_records_but_compares_no_versions() -> None:
    with benchmark_stack(plugins=(PLUGINS,)) as bench, psycopg.connect(bench.state.target) as connection:
        connection.autocommit = True
        connection.execute(CREATE)
        old = record(bench, FIRST, "old")
        send(bench, old, record(bench, SECOND, "deleted"), record(bench, FIRST, "new"), record(bench, SECOND, None))
        send(bench, Record(old.topic, b"third", b"not avro"))
        with sink(bench):
            wait_titles(bench, connection, {FIRST: "new"})
            send(bench, old, record(bench, SECOND, "back"))
            wait_titles(bench, connection, {FIRST: "old", SECOND: "back"})
            assert dead_letters(bench) == [b"third"]
