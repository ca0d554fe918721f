"""Component test: every order is shipped once, from the committed row to the published event."""

from __future__ import annotations

from contextlib import closing
from typing import Any
from uuid import UUID

import psycopg
import pytest
from confluent_kafka import Message
from shop.orders import place_order
from shop.shipping import Shipping

from outbox_kit.testing import OutboxStack
from outbox_kit.waiting import Observation, wait_for

SECONDS = 30.0


def shipments(dsn: str, order_id: UUID) -> list[int]:
    """Parcels of each shipment of an order."""
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute("select parcels from shipments where order_id = %s", [order_id])]


def run_until_shipped(shipping: Shipping, dsn: str, order_id: UUID) -> list[int]:
    """Let the consumer work until the order has a shipment."""

    def poll() -> Observation[list[int]]:
        records = shipping.poll()
        return Observation(shipments(dsn, order_id) or None, f"{records} records in the last poll")

    return wait_for(f"a shipment of order {order_id}", poll, seconds=SECONDS, interval=0.01)


def test_ships_an_order_and_sends_the_event(shipping: Shipping, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        order_id = place_order(connection, "1 Main Street", ["pen", "ink", "paper"])
    assert run_until_shipped(shipping, dsn, order_id) == [2]
    with psycopg.connect(dsn) as connection:
        events = connection.execute(
            "select event_type from outbox_event where payload ->> 'order_id' = %s", [str(order_id)]
        ).fetchall()
    assert events == [("shipment_prepared",)]


def test_does_not_send_an_event_for_a_rolled_back_order(shipping: Shipping, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        lost = place_order(connection, "nowhere", ["pen"])
        connection.rollback()
        retained = place_order(connection, "2 Main Street", ["pen"])
    assert run_until_shipped(shipping, dsn, retained) == [1]
    assert shipments(dsn, lost) == []


class CrashError(Exception):
    """Simulates a process that ends."""


class CrashingShipping(Shipping):
    """Ends between the database's commit and Kafka's, as soon as there is a shipment of `order_id`."""

    order_id: UUID

    def commit(self, message: Message) -> None:
        if shipments(self.dsn, self.order_id):
            raise CrashError
        super().commit(message)


class RememberingShipping(Shipping):
    """Remembers of each record whether it was new."""

    def handle(self, connection: psycopg.Connection[Any], message: Message) -> bool:
        self.new = super().handle(connection, message)
        return self.new


def test_does_not_ship_twice_after_a_crash_before_the_offset_commit(dsn: str, outbox_stack: OutboxStack) -> None:
    addresses = (dsn, outbox_stack.bootstrap_servers, outbox_stack.registry_url)
    with psycopg.connect(dsn) as connection:
        order_id = place_order(connection, "3 Main Street", ["pen", "ink"])
    with closing(CrashingShipping(*addresses, group="crashing")) as first:
        first.order_id = order_id
        with pytest.raises(CrashError):
            run_until_shipped(first, dsn, order_id)

    with closing(RememberingShipping(*addresses, group="crashing")) as second:

        def poll() -> Observation[bool]:
            return Observation(True if second.poll() else None, "no record")

        wait_for("the record to come again", poll, seconds=SECONDS, interval=0.01)
        assert second.new is False
    assert shipments(dsn, order_id) == [1]
