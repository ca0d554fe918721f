"""Service of the receiving benchmark: a stack with a topic of events, a database, and handlers with one insert each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import sqlalchemy
import sqlalchemy.orm
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.benchmarks.benchmark_stack import print_progress
from tests.conftest import make_project

from outbox_events import Deliveries, Event, filter_table, position_table, processed_table
from outbox_events.kafka.record import PRODUCER_SETTINGS, Record
from outbox_kit.stack import Stack

TOPIC = "bench.receiving"
PARTITIONS = 6
VALUE = b"x" * 1024
KEYS = 10_000
EVENT_TYPE = "book_lent"
TABLES = """
create table loan (
  id bigint generated always as identity primary key, book_id text not null, kind text not null,
  lent_at_ms bigint not null, size int not null)"""
INSERT = "insert into loan (book_id, kind, lent_at_ms, size) values (%s, %s, %s, %s)"
SQLALCHEMY_INSERT = sqlalchemy.text(
    "insert into loan (book_id, kind, lent_at_ms, size) values (:id, :kind, :at, :size)"
)


@dataclass(frozen=True)
class Service:
    """The addresses of the stack, and ways to connect to the database."""

    bootstrap: str
    dsn: str
    engine: sqlalchemy.Engine

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn)

    def session(self) -> sqlalchemy.orm.Session:
        return sqlalchemy.orm.Session(self.engine)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def settings(self, group: str) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "group.id": group}

    def reset(self) -> None:
        """Empty the tables, and let PostgreSQL write its dirty buffers."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("truncate loan, public.processed_event, public.event_filter")
            connection.execute("checkpoint")

    def rows(self) -> int:
        """Return the number of effects."""
        with self.connect() as connection:
            return int(connection.execute("select count(*) from loan").fetchall()[0][0])


def insert(event: Event, connection: psycopg.Connection[Any]) -> None:
    """Apply an event through psycopg."""
    connection.execute(INSERT, [event.aggregate_id, event.event_type, event.timestamp_ms, len(event.raw_value or b"")])


def insert_in_session(event: Event, session: sqlalchemy.orm.Session) -> None:
    """Apply an event through SQLAlchemy."""
    size = len(event.raw_value or b"")
    values = {"id": event.aggregate_id, "kind": event.event_type, "at": event.timestamp_ms, "size": size}
    session.execute(SQLALCHEMY_INSERT, values)


@contextmanager
def running_service(events: int) -> Iterator[Service]:
    """Start PostgreSQL and Kafka with `events` events in the topic, and delete the servers at the end."""
    with tempfile.TemporaryDirectory(prefix="outbox-bench-") as folder:
        stack = Stack(make_project(Path(folder) / "project"))
        try:
            state = stack.up(print_progress, services=["postgres", "kafka"])
            url = sqlalchemy.engine.make_url("postgresql+psycopg://")
            engine = sqlalchemy.create_engine(url, creator=lambda: psycopg.connect(state.postgres))
            with psycopg.connect(state.postgres) as connection:
                connection.execute(TABLES)
                connection.execute(processed_table.create_table_sql())
                connection.execute(position_table.create_table_sql())
                connection.execute(filter_table.create_table_sql())
            service = Service(state.kafka, state.postgres, engine)
            produce(service, events)
            yield service
            engine.dispose()
        finally:
            stack.down(print_progress, purge=True)


def produce(service: Service, events: int) -> None:
    """Create the topic and send events with different ids."""
    admin = service.admin()  # the result fails once the client is deleted
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": service.bootstrap, **PRODUCER_SETTINGS, "linger.ms": 5})
    deliveries = Deliveries(producer)
    for number in range(events):
        headers = (
            ("event_id", str(uuid4()).encode()),
            ("event_type", EVENT_TYPE.encode()),
            ("source_sequence", f"{number:039d}".encode()),
        )
        deliveries.send(Record(TOPIC, f"book-{number % KEYS}".encode(), VALUE, headers))
    deliveries.wait()
