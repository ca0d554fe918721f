"""A backfill while services change the same aggregates. At the end, the topic has the states of the table."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Message
from tests.integration.operations.test_backfill import PARTITIONS, QUERY, SCHEMA, Connection, entry, make_items
from tests.integration.support import Deploy, decode, headers, records, wait_record

from outbox_kit.backfill import BackfillOptions, backfill
from outbox_kit.deployment import Deployment
from outbox_kit.results import silent


@pytest.fixture
def connection(source_dsn: str) -> Iterator[Connection]:
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        yield connection


def write(connection: Connection, name: str, key: str, version: int | None) -> str:
    """Insert one outbox row, as a service does. Return the row's id."""
    payload = None if version is None else json.dumps({"id": key, "version": version})
    row = connection.execute(
        f"insert into {name}_event (aggregate_type, aggregate_id, event_type, payload)"
        " values ('item', %s, 'written', %s) returning id",
        (key, payload),
    ).fetchone()
    assert row is not None
    return str(row[0])


def drained(deployment: Deployment, connection: Connection, name: str) -> list[Message]:
    """Wait until all committed rows are delivered. Return every record of the topic."""
    wait_record(deployment, f"{name}.item", PARTITIONS, write(connection, name, "last", 0))
    actual = records(deployment, f"{name}.item", PARTITIONS)
    return [message for message in actual if message.key() != b"last"]


def latest(deployment: Deployment, messages: list[Message]) -> dict[str, int]:
    """Return the version of each item by its newest record, without items whose newest record is a tombstone."""
    newest = {message.key().decode(): message for message in sorted(messages, key=lambda item: item.offset())}  # type: ignore[union-attr]
    return {key: decode(deployment, "item", message)["version"] for key, message in newest.items() if message.value()}


class Service(threading.Thread):
    """Service that changes, removes and re-creates random items with a row lock and an event, until it is stopped."""

    def __init__(self, dsn: str, name: str, keys: list[int], seed: int) -> None:
        super().__init__(name=f"service-{seed}")
        self.stop = threading.Event()
        self.changes = 0
        self._dsn, self._name, self._keys = dsn, name, keys
        self._random = random.Random(seed)  # noqa: S311

    def run(self) -> None:
        with psycopg.connect(self._dsn) as connection:
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            while not self.stop.is_set():
                with connection.transaction():
                    self._change(connection, self._random.choice(self._keys))
                self.changes += 1

    def _change(self, connection: Connection, key: int) -> None:
        if self._random.random() < 0.1:
            removed = connection.execute(f"delete from {self._name}_item where id = %s", (key,)).rowcount
            if removed:
                write(connection, self._name, str(key), None)
            return
        row = connection.execute(
            f"insert into {self._name}_item as t (id, version) values (%s, 1)"
            " on conflict (id) do update set version = t.version + 1 returning version",
            (key,),
        ).fetchone()
        assert row is not None
        if self._random.random() < 0.5:
            connection.execute("select pg_sleep(0.002)")  # holds the lock, so that the backfill must wait
        write(connection, self._name, str(key), row[0])


@contextmanager
def serving(dsn: str, name: str, keys: list[int], writers: int) -> Iterator[list[Service]]:
    """Run services during the block."""
    services = [Service(dsn, name, keys, seed) for seed in range(writers)]
    for item in services:
        item.start()
    try:
        yield services
    finally:
        for item in services:
            item.stop.set()
        for item in services:
            item.join()


def test_topic_equals_the_table_after_a_backfill_under_load(
    deploy: Deploy, project: Path, connection: Connection, source_dsn: str
) -> None:
    # The query is slow between its snapshot and its commit, so only the row locks make newer events follow its events.
    slow = "with pause as materialized (select pg_sleep(0.03)) " + QUERY + " cross join pause"
    (project / "schemas" / "item.avsc").write_text(json.dumps(SCHEMA))
    make_items(connection, "underload_item", 300)
    item = {"schema": "schemas/item.avsc", "partitions": PARTITIONS, "backfill": entry("underload_item", slow)}
    deployment = deploy("underload", aggregates={"item": item})
    # With this default, all statements of a transaction use the same snapshot.
    connection.execute("alter role current_user set default_transaction_isolation = 'repeatable read'")
    try:
        with serving(source_dsn, "underload", list(range(1, 301)), 4) as services:
            [done] = backfill(deployment, [], silent, BackfillOptions(batch_size=10))
    finally:
        connection.execute("alter role current_user reset default_transaction_isolation")
    assert sum(each.changes for each in services) > 50
    assert done.rows > 200

    actual = drained(deployment, connection, "underload")
    rows = connection.execute("select id::text, version from underload_item").fetchall()
    assert latest(deployment, actual) == {key: version for key, version in rows}
    kinds = Counter(headers(message)["event_type"] for message in actual)
    assert kinds["backfill"] == done.rows
    behind = [message for message in actual if headers(message)["event_type"] == "backfill"]
    assert max(Counter(message.key() for message in behind).values()) == 1
