"""Database, topic, producers and crashing child processes for the tests of outbox_events.producing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, Producer
from psycopg.rows import tuple_row

from outbox_events import delivery_proof, recovery_store
from outbox_events.kafka.record import PRODUCER_SETTINGS, Record, text_headers
from outbox_events.kafka.topic_reader import read_bounds, read_records
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.pipeline import Kafka
from outbox_kit.stack import StackState

CRASH_CODE = 9
CHILD = Path(__file__).with_name("crashing_sender.py")


class LostResponseProducer(Producer):
    """Commits, and then raises the error that requires an abort, as after a lost response of the coordinator."""

    def commit_transaction(self, *arguments: float) -> None:
        super().commit_transaction(*arguments)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "lost response", False, False, True))


class HookedProducer(Producer):
    """Calls functions between the steps of a transaction."""

    after_flush: Callable[[], object] = staticmethod(bool)
    before_commit: Callable[[], object] = staticmethod(bool)
    before_abort: Callable[[], object] = staticmethod(bool)

    def flush(self, *arguments: float) -> int:
        remaining = super().flush(*arguments)
        self.after_flush()
        return remaining

    def commit_transaction(self, *arguments: float) -> None:
        self.before_commit()
        super().commit_transaction(*arguments)

    def abort_transaction(self, *arguments: float) -> None:
        self.before_abort()
        super().abort_transaction(*arguments)


class LosingConnection(psycopg.Connection[Any]):
    """Commits, and then is lost before the response arrives."""

    def commit(self) -> None:
        super().commit()
        self.close()
        message = "server closed the connection unexpectedly"
        raise psycopg.OperationalError(message)


class World:
    """One topic and one database, and functions that read their content."""

    def __init__(self, dsn: str, bootstrap: str, cleanup: ExitStack, *, prefix: str = "") -> None:
        self.dsn = dsn
        self.topic = f"{prefix}producing-{uuid4().hex[:12]}"
        self.transactional_id = f"{self.topic}-sender"
        self.settings = {"bootstrap.servers": bootstrap}
        self._kafka = KafkaClient(Kafka(bootstrap_servers=bootstrap))
        self._cleanup = cleanup
        self._kafka.create(self.topic, partitions=2, replication_factor=1, config={})
        cleanup.callback(self._kafka.delete, self.topic)

    def producer(self, *, transactional: bool = True, kind: type[Producer] = Producer, **settings: object) -> Producer:
        transaction = {"transactional.id": self.transactional_id} if transactional else {}
        return kind({**self.settings, **PRODUCER_SETTINGS, **transaction, "log_level": 0, **settings})

    def connect(
        self,
        kind: type[psycopg.Connection[Any]] = psycopg.Connection,
        **options: Any,  # noqa: ANN401
    ) -> psycopg.Connection[Any]:
        connection = kind.connect(self.dsn, row_factory=tuple_row, **options)
        self._cleanup.callback(connection.close)
        return connection

    def record(self, event_id: str | None = None, *, topic: str = "") -> Record:
        event_id = event_id or str(uuid4())
        return Record(
            topic or self.topic, b"key", b"value", (("event_id", event_id.encode()), ("a", b"\x00\xff"), ("a", b""))
        )

    def column(self, query: str) -> list[Any]:
        """Return the first column of a query, as another session sees it."""
        with psycopg.connect(self.dsn, row_factory=tuple_row) as connection:
            return [row[0] for row in connection.execute(query).fetchall()]  # type: ignore[arg-type]

    def purchases(self) -> set[str]:
        return set(self.column("select id from purchase"))

    def produced(self) -> int:
        """Return the number of offsets that are in use, including those of open transactions."""
        bounds = read_bounds(self.settings, [self.topic], IsolationLevel.READ_UNCOMMITTED)[self.topic]
        return sum(bound.end - bound.first for bound in bounds.values())

    def compact(self) -> None:
        """Make the topic a compacted topic."""
        self._kafka.set_config(self.topic, {"cleanup.policy": "compact"})

    def delivered(self, level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> Counter[str]:
        """Return how often each committed event is on the topic. Without READ_COMMITTED, wait for open transactions."""
        messages: list[Message] = []
        read_records(self.settings, read_bounds(self.settings, [self.topic], level), messages.append)
        return Counter(text_headers(message)["event_id"] for message in messages)

    def terminate(self, connection: psycopg.Connection[Any]) -> None:
        """End the server process of a connection."""
        self.connect(autocommit=True).execute("select pg_terminate_backend(%s, 10000)", [connection.info.backend_pid])

    def crash(self, way: str, point: str) -> str:
        """Send an event in a child process that is killed at `point`. Return the id of the event."""
        event_id = str(uuid4())
        variables = {
            "DSN": self.dsn,
            "BOOTSTRAP": self.settings["bootstrap.servers"],
            "TOPIC": self.topic,
            "TRANSACTIONAL_ID": self.transactional_id,
        }
        done = subprocess.run(
            [sys.executable, str(CHILD), way, point, event_id],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == (0 if point == "none" else CRASH_CODE), done.stderr
        return event_id


@pytest.fixture
def world(dsn: str, state: StackState) -> Iterator[World]:
    """Create a topic, and empty tables in the database."""
    with psycopg.connect(dsn) as connection:
        create_tables(connection)
    with ExitStack() as cleanup:
        yield World(dsn, state.kafka, cleanup)


def create_tables(connection: psycopg.Connection[Any]) -> None:
    connection.execute("drop table if exists purchase, recovery_store, unproven_record")
    connection.execute("create table purchase (id text primary key)")
    connection.execute(recovery_store.create_table_sql())
    connection.execute(delivery_proof.create_table_sql())
