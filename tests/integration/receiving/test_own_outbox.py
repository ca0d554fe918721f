"""Idempotent consumer with its own outbox: each event of one pipeline becomes one event of another pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from threading import Event as StopEvent
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer
from tests.integration.receiving.service import run_until
from tests.integration.support import Deploy, headers, records, wait_record

from outbox_events import Event, Handlers, ProcessedEvents, Receiver, Work, emit, processed_table
from outbox_events.kafka.record import PRODUCER_SETTINGS
from outbox_kit.deployment import Deployment

ORDERS, SHIPMENTS, GROUP, TABLE = "orders", "shipments", "shipping", "public.shipping_processed"
Connection = psycopg.Connection[Any]


class InterruptedAfterCommit(ProcessedEvents[Connection]):
    """Interrupts the process between the commit of the database and the commit of the offset."""

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Connection]]:
        with super().transaction(events) as work:
            yield work
        raise KeyboardInterrupt


@dataclass
class Shipping:
    """A service that ships each placed order, and announces the shipment in the same database transaction."""

    dsn: str
    placed: Deployment
    shipped: Deployment
    interrupts: list[str] = field(default_factory=list)
    """Orders after whose outbox rows the process is interrupted."""

    def place(self, order: str) -> str:
        """Place an order. Return the id of its event."""
        with psycopg.connect(self.dsn) as connection:
            return str(_emit(connection, ORDERS, "order", order, "OrderPlaced"))

    def ship(self, event: Event, connection: Connection) -> None:
        connection.execute("insert into shipment values (%s)", [event.aggregate_id])
        _emit(connection, SHIPMENTS, "shipment", event.aggregate_id, "OrderShipped")
        if event.aggregate_id in self.interrupts:
            self.interrupts.remove(event.aggregate_id)
            raise KeyboardInterrupt

    def receiver(self, kind: type[ProcessedEvents[Connection]] = ProcessedEvents) -> Receiver[Connection]:
        handlers = Handlers[Connection]()
        handlers.on("OrderPlaced")(self.ship)
        strategy = kind(lambda: psycopg.connect(self.dsn), GROUP, table=TABLE)
        settings = {"bootstrap.servers": self.bootstrap, "group.id": GROUP, "session.timeout.ms": 6000}
        return Receiver(settings, [f"{ORDERS}.order"], strategy, handlers, batch_size=1)

    @property
    def bootstrap(self) -> str:
        return self.placed.environment.kafka.bootstrap_servers

    def interrupt(self, receiver: Receiver[Connection]) -> None:
        """Run the receiver until it is interrupted, then close it."""
        with closing(receiver), pytest.raises(KeyboardInterrupt):
            receiver.run(StopEvent(), poll_s=0.1)

    def run_until_shipped(self, order: str) -> dict[str, int]:
        """Run a new receiver until an order is shipped. Return the receiver's counters."""
        with self.receiver() as receiver:
            run_until(receiver, f"shipment {order}", lambda: self.rows(order) == 1)
            return receiver.counters.to_dict()

    def rows(self, order: str) -> int:
        with psycopg.connect(self.dsn) as connection:
            rows = connection.execute("select count(*) from shipment where id = %s", [order]).fetchall()
        return int(rows[0][0])

    def announced(self, order: str) -> int:
        """Return the number of records of a shipment, after the record of a later shipment has arrived."""
        with psycopg.connect(self.dsn) as connection:
            last = str(_emit(connection, SHIPMENTS, "shipment", f"after-{order}", "OrderShipped"))
        wait_record(self.shipped, f"{SHIPMENTS}.shipment", 1, last)
        return sum(message.key() == order.encode() for message in records(self.shipped, f"{SHIPMENTS}.shipment", 1))


def _emit(connection: Connection, pipeline: str, kind: str, key: str, event_type: str) -> object:
    return emit(
        connection,
        aggregate_type=kind,
        aggregate_id=key,
        event_type=event_type,
        payload={"id": key},
        table=f"public.{pipeline}_event",
    )


@pytest.fixture(scope="module")
def shipping(deploy_once: Deploy, source_dsn: str) -> Iterator[Shipping]:
    aggregate = {"payload": "text", "partitions": 1}
    placed = deploy_once(ORDERS, aggregates={"order": aggregate})
    shipped = deploy_once(SHIPMENTS, aggregates={"shipment": aggregate})
    with psycopg.connect(source_dsn) as connection:
        connection.execute("create table shipment (id text)")  # there is no key that would prevent a second row
        connection.execute(processed_table.create_table_sql(TABLE))
    yield Shipping(source_dsn, placed, shipped)
    with psycopg.connect(source_dsn) as connection:
        connection.execute(f"drop table shipment, {TABLE}")


def test_an_interrupt_before_the_commit_sends_nothing(shipping: Shipping) -> None:
    order = f"order-{uuid4().hex[:8]}"
    shipping.interrupts.append(order)
    shipping.place(order)
    shipping.interrupt(shipping.receiver())
    assert (shipping.rows(order), shipping.announced(order)) == (0, 0)
    assert shipping.run_until_shipped(order)["handled"] == 1
    assert (shipping.rows(order), shipping.announced(order)) == (1, 1)


def test_an_interrupt_before_the_offset_commit_sends_one_event(shipping: Shipping) -> None:
    order, following = f"order-{uuid4().hex[:8]}", f"order-{uuid4().hex[:8]}"
    shipping.place(order)
    shipping.interrupt(shipping.receiver(InterruptedAfterCommit))
    shipping.place(following)
    assert shipping.run_until_shipped(following)["duplicates"] == 1
    assert (shipping.rows(order), shipping.announced(order)) == (1, 1)


def test_an_event_that_was_produced_twice_sends_one_event(shipping: Shipping) -> None:
    order, following = f"order-{uuid4().hex[:8]}", f"order-{uuid4().hex[:8]}"
    message = wait_record(shipping.placed, f"{ORDERS}.order", 1, shipping.place(order))
    producer = Producer({"bootstrap.servers": shipping.bootstrap, **PRODUCER_SETTINGS})
    pairs = list(headers(message).items())
    producer.produce(f"{ORDERS}.order", key=message.key(), value=message.value(), headers=pairs)
    assert producer.flush(30) == 0
    shipping.place(following)
    assert shipping.run_until_shipped(following)["duplicates"] == 1
    assert (shipping.rows(order), shipping.announced(order)) == (1, 1)
