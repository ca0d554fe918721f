"""Faults of the connections to PostgreSQL, through the proxy."""

from __future__ import annotations

import time

from outbox_lab.drill.proxy import Proxy

SLOW_DELAY_S = 0.2


def slow_down(proxy: Proxy, seconds: float) -> None:
    """Delay each chunk by SLOW_DELAY_S, for some seconds."""
    proxy.set_delay(SLOW_DELAY_S)
    try:
        time.sleep(seconds)
    finally:
        proxy.set_delay(0)
