"""Producer: writes orders and their events in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import psycopg

from outbox_kit.sending import emit


def place_order(connection: psycopg.Connection[Any], address: str, items: Sequence[str]) -> UUID:
    """Insert the order and its event in the caller's transaction; return the order's id."""
    order_id = uuid4()
    connection.execute("insert into orders values (%s, %s, %s)", [order_id, address, list(items)])
    payload = {"id": order_id, "address": address, "items": list(items)}
    emit(connection, aggregate_type="order", aggregate_id=order_id, event_type="order_placed", payload=payload)
    return order_id
