"""Deliveries whose queue is full or whose record fails."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.integration.sending.producing_support import World, world

from outbox_events import Deliveries, NotDeliveredError, fence
from outbox_events.producing.errors import FENCED_HINT, UNUSABLE_HINT

pytestmark = pytest.mark.integration
__all__ = ["world"]

QUEUE_OF_ONE = {"queue.buffering.max.messages": 1, "linger.ms": 100}


def test_a_full_queue_delays_a_record(world: World) -> None:
    deliveries = Deliveries(world.producer(transactional=False, **QUEUE_OF_ONE))
    for number in range(3):
        deliveries.send(world.record(str(number)))
    deliveries.wait()
    assert world.delivered() == {"0": 1, "1": 1, "2": 1}


def test_a_failure_is_reported_once(world: World) -> None:
    deliveries = Deliveries(world.producer(transactional=False))
    deliveries.send(replace(world.record("failed"), partition=99))
    with pytest.raises(NotDeliveredError):
        deliveries.wait()
    deliveries.send(world.record("next"))
    deliveries.wait()
    assert world.delivered() == {"next": 1}


def test_a_producer_that_is_fenced_while_its_queue_is_full(world: World) -> None:
    """The client raises the fatal error in poll(), not in produce()."""
    producer = world.producer(**QUEUE_OF_ONE)
    fence(producer)
    producer.begin_transaction()
    deliveries = Deliveries(producer)
    fence(world.producer())
    deliveries.send(world.record())
    with pytest.raises(NotDeliveredError) as caught:
        deliveries.send(world.record())
    assert caught.value.hint in (FENCED_HINT, UNUSABLE_HINT)
    assert world.delivered() == {}
