"""Direct sends: the events that each order of commits loses or announces wrongly after a crash."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.integration.sending.producing_support import World, world

from outbox_events import NotDeliveredError
from outbox_events.kafka.record import Record
from outbox_events.producing.database import Order
from outbox_lab.drill.senders.direct_sender import DirectSender

pytestmark = pytest.mark.integration
__all__ = ["world"]


ORDERS: tuple[Order, ...] = ("database-first", "kafka-first")


def send(world: World, connection: psycopg.Connection[Any], order: Order, record: Record) -> None:
    """Insert the row `a` and send a record in one transaction of the sender."""
    sender = DirectSender(connection, world.producer(transactional=False), order=order)
    with sender.transaction() as transaction:
        connection.execute("insert into purchase values ('a')")
        transaction.send(record)


@pytest.mark.parametrize("order", ORDERS)
def test_commits_and_sends(world: World, order: Order) -> None:
    send(world, world.connect(), order, world.record("a"))
    assert world.purchases() == {"a"}
    assert world.delivered() == {"a": 1}


@pytest.mark.parametrize("order", ORDERS)
def test_a_failed_block_sends_nothing(world: World, order: Order) -> None:
    connection = world.connect()
    sender = DirectSender(connection, world.producer(transactional=False), order=order)

    def fail() -> None:
        with sender.transaction() as transaction:
            connection.execute("insert into purchase values ('a')")
            transaction.send(world.record("a"))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert world.purchases() == set()
    assert world.delivered() == {}


def test_database_first_loses_the_record_after_a_crash(world: World) -> None:
    event_id = world.crash("direct-database-first", "after-database")
    assert world.purchases() == {event_id}
    assert world.delivered() == {}


def test_kafka_first_announces_what_did_not_happen_after_a_crash(world: World) -> None:
    event_id = world.crash("direct-kafka-first", "after-kafka")
    assert world.purchases() == set()
    assert world.delivered() == {event_id: 1}


def test_kafka_first_sends_before_the_commit_is_visible(world: World) -> None:
    seen: list[set[str]] = []

    class Observing(psycopg.Connection[Any]):
        def commit(self) -> None:
            assert world.delivered() == {"a": 1}
            seen.append(world.purchases())
            super().commit()

    with Observing.connect(world.dsn) as observing:
        send(world, observing, "kafka-first", world.record("a"))
        assert seen[0] == set()
    assert world.purchases() == {"a"}


def test_undelivered_record_rolls_back_only_with_kafka_first(world: World) -> None:
    record = Record(world.topic, b"key", b"x", partition=99)
    with pytest.raises(NotDeliveredError):
        send(world, world.connect(), "kafka-first", record)
    assert world.purchases() == set()
    with pytest.raises(NotDeliveredError):
        send(world, world.connect(), "database-first", record)
    assert world.purchases() == {"a"}
