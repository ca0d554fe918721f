"""Load of the sending benchmark: transactions with one event each, and the events of a backlog."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ClassVar, LiteralString
from uuid import uuid4

import psycopg
from confluent_kafka import Producer

from outbox_events import Deliveries, OutboxEvent
from outbox_events.kafka.record import PRODUCER_SETTINGS, Record
from outbox_kit.connect import lifecycle
from outbox_kit.kafka.client import client_settings
from outbox_kit.pipeline import Kafka
from outbox_lab.drill import accounts
from outbox_lab.drill.components import Component
from outbox_lab.drill.senders.catalogue import open_sender
from outbox_lab.drill.senders.sender import Send, SenderSettings
from outbox_lab.drill.ways.cdc import MESSAGE_PREFIX
from outbox_lab.drill.ways.pipeline import PipelineWay

THREADS = 4
ACCOUNTS = 200
ROWS_PER_TRANSACTION = 1000
PAYLOAD: LiteralString = "json_build_object('id', 'account-' || n %% 200, 'version', n, 'balance', n)"
FILL_TABLE: LiteralString = f"""
    insert into {{}} (aggregate_type, aggregate_id, event_type, payload)
    select 'account', 'account-' || n %% 200, 'account_changed', {PAYLOAD} from generate_series(%s::int, %s::int) n"""
FILL_MESSAGES: LiteralString = f"""
    select count(pg_logical_emit_message(true, '{MESSAGE_PREFIX}', json_build_object(
      'id', gen_random_uuid(), 'aggregate_type', 'account', 'aggregate_id', 'account-' || n %% 200,
      'event_type', 'account_changed', 'payload', {PAYLOAD}, 'headers', null, 'created_at', now())::text))
    from generate_series(%s::int, %s::int) n"""


def event(number: int) -> OutboxEvent:
    """Return the event of a transaction."""
    name = f"account-{number % ACCOUNTS}"
    payload = {"id": name, "version": number, "balance": number}
    return OutboxEvent(
        aggregate_type=accounts.AGGREGATE, aggregate_id=name, event_type="account_changed", payload=payload
    )


def write(dsn: str, settings: SenderSettings | None, *, seconds: float, rate: float | None = None) -> int:
    """Run transactions in THREADS sessions for a time. Return the number of transactions.

    Each transaction inserts one business row and, with `settings`, sends one event. `rate` limits the
    transactions per second; without `rate`, each session runs them one after the other.
    """
    interval = THREADS / rate if rate else 0.0
    with ThreadPoolExecutor(THREADS) as pool:
        sessions = [pool.submit(_session, dsn, settings, number, seconds, interval) for number in range(THREADS)]
        return sum(session.result() for session in sessions)


def _session(dsn: str, settings: SenderSettings | None, number: int, seconds: float, interval: float) -> int:
    with closing(psycopg.connect(dsn)) as connection, _transactions(connection, settings, number) as transact:
        started, count = time.monotonic(), 0
        while time.monotonic() < started + seconds:
            transact(event(count * THREADS + number))
            count += 1
            time.sleep(max(0.0, started + count * interval - time.monotonic()))
        return count


@contextmanager
def _transactions(
    connection: accounts.Connection, settings: SenderSettings | None, number: int
) -> Iterator[Callable[[OutboxEvent], None]]:
    """Yield a function that runs the transaction of an event."""

    def insert(sent: OutboxEvent, send: Send) -> None:
        connection.execute(accounts.ENTER, (uuid4(), str(sent.aggregate_id), 0))
        send([sent])

    def plain(sent: OutboxEvent) -> None:
        with connection.transaction():
            insert(sent, len)

    if settings is None:
        yield plain
        return
    with closing(open_sender(settings, f"bench-{number}")) as sender:
        sender.recover(connection)
        connection.commit()

        def transact(sent: OutboxEvent) -> None:
            with sender.transaction(connection) as send:
                insert(sent, send)

        yield transact


def produce(kafka: Kafka, topic: str, seconds: float) -> int:
    """Send records of the same events with one idempotent producer, without a database, for at least a time.

    Return the number of records.
    """
    deliveries = Deliveries(Producer({**client_settings(kafka), **PRODUCER_SETTINGS, "linger.ms": 5}))
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        sent = event(number)
        headers = (("event_id", str(sent.event_id).encode()),)
        deliveries.send(Record(topic, str(sent.aggregate_id).encode(), json.dumps(sent.payload).encode(), headers))
        number += 1
    deliveries.wait()
    return number


class FilledFirst(PipelineWay):
    """A way whose processes or connector start when `rows` events are waiting (see `with_backlog`)."""

    rows: ClassVar[int]

    @contextmanager
    def running(self, pipeline_file: Path) -> Iterator[Mapping[str, Component]]:
        connect, name = self._deployment.connect, self._deployment.pipeline.connector.name
        if not self.systems:
            lifecycle.stop(connect, name)
        with self.drill.connect_to_database() as connection:
            fill(connection, self.sender(), self.rows)
        if not self.systems:
            connect.resume(name)
        with super().running(pipeline_file) as components:
            yield components


def with_backlog(way: type[PipelineWay], rows: int) -> type[PipelineWay]:
    """Return the way with a backlog that exists when it starts. A relay consists of one process."""
    return type(f"Filled{way.__name__}", (FilledFirst, way), {"rows": rows, "processes": 1})


def fill(connection: psycopg.Connection[tuple[object, ...]], settings: SenderSettings, rows: int) -> None:
    """Write the events of a backlog, in transactions of ROWS_PER_TRANSACTION."""
    statement = FILL_MESSAGES if settings.name == "messages" else FILL_TABLE.format(settings.options["table"])
    for start in range(0, rows, ROWS_PER_TRANSACTION):
        connection.execute(statement, (start + 1, min(start + ROWS_PER_TRANSACTION, rows)))
