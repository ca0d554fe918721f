"""Component test: each committed order results in one shipment and its event."""

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
    """Return the number of parcels of each shipment of an order."""
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute("select parcels from shipments where order_id = %s", [order_id])]


def run_until_shipped(shipping: Shipping, dsn: str, order_id: UUID) -> list[int]:
    """Poll until the order has a shipment; return the number of parcels of each shipment."""

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
        rolled_back = place_order(connection, "1 Side Street", ["pen"])
        connection.rollback()
        committed = place_order(connection, "2 Main Street", ["pen"])
    assert run_until_shipped(shipping, dsn, committed) == [1]
    assert shipments(dsn, rolled_back) == []


class CrashError(Exception):
    """Simulates a crash of the process."""


class CrashingShipping(Shipping):
    """Crashes after the database commit and before the offset commit, once `order_id` has a shipment."""

    order_id: UUID

    def commit(self, message: Message) -> None:
        if shipments(self.dsn, self.order_id):
            raise CrashError
        super().commit(message)


class RecordingShipping(Shipping):
    """Stores whether the last record was new."""

    def handle(self, connection: psycopg.Connection[Any], message: Message) -> bool:
        self.is_new = super().handle(connection, message)
        return self.is_new


def test_does_not_ship_twice_after_a_crash_before_the_offset_commit(dsn: str, outbox_stack: OutboxStack) -> None:
    addresses = (dsn, outbox_stack.bootstrap_servers, outbox_stack.registry_url)
    with psycopg.connect(dsn) as connection:
        order_id = place_order(connection, "3 Main Street", ["pen", "ink"])
    with closing(CrashingShipping(*addresses, group="crashing")) as crashing:
        crashing.order_id = order_id
        with pytest.raises(CrashError):
            run_until_shipped(crashing, dsn, order_id)

    with closing(RecordingShipping(*addresses, group="crashing")) as restarted:

        def poll() -> Observation[bool]:
            return Observation(True if restarted.poll() else None, "no record")

        wait_for("redelivery of the record", poll, seconds=SECONDS, interval=0.01)
        assert restarted.is_new is False
    assert shipments(dsn, order_id) == [1]
