"""Errors of a producer without brokers."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from outbox_events import UnreachableError, fence


def test_brokers_that_do_not_respond_leave_the_producer_usable() -> None:
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "transactional.id": "t", "log_level": 0})
    for _ in range(2):
        with pytest.raises(UnreachableError, match="initialize"):
            fence(producer, seconds=0.1)
