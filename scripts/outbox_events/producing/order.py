"""Order of the two commits of a sender."""

from __future__ import annotations

from typing import Literal

from outbox_events.errors import ConfigurationError

Order = Literal["database-first", "kafka-first"]
ORDERS = ("database-first", "kafka-first")


def require_order(order: Order) -> Order:
    """Return the order. Raises ConfigurationError for an unknown one."""
    if order not in ORDERS:
        raise ConfigurationError(f"unknown order {order!r}", f"use one of {', '.join(ORDERS)}")
    return order
