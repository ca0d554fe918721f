"""Destination topic as proof of delivery: rows live from the business transaction until the proof."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from confluent_kafka import Consumer
from tests.integration.sending.producing_support import World, world

from outbox_kit.errors import RefusedError
from outbox_kit.sending.producing import Deliveries, DeliveryProof
from outbox_kit.waiting import Observation, wait_for

pytestmark = pytest.mark.integration
__all__ = ["world"]

ROWS = "select event_id from unproven_record order by position"
PROOF = DeliveryProof()


def run_recovery(world: World) -> tuple[int, int]:
    producer = world.producer(transactional=False)
    return PROOF.recover(world.connect(), producer, world.settings, min_age_s=0)


@pytest.fixture
def consumer(world: World) -> Iterator[Consumer]:
    settings = {**world.settings, "group.id": world.topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
    consumer = Consumer(settings)
    consumer.subscribe([world.topic])
    yield consumer
    consumer.close()


def test_listener_deletes_the_rows_in_sets(world: World, consumer: Consumer) -> None:
    connection, producer = world.connect(), world.producer(transactional=False)
    records = [world.record(str(number)) for number in range(20)]
    with connection.transaction():
        connection.execute("insert into purchase values ('a')")
        PROOF.save(connection, records)
    assert PROOF.unproven(connection, min_age_s=0) == records
    connection.commit()
    deliveries = Deliveries(producer)
    for record in records[:19]:
        deliveries.send(record)
    deliveries.wait()

    def listen() -> Observation[bool]:
        PROOF.listen_once(connection, consumer, seconds=0.2)
        rows = world.column(ROWS)
        return Observation(rows == ["19"] or None, f"{len(rows)} rows")

    wait_for("the proof of 19 records", listen, seconds=30, interval=0)


def test_rollback_saves_and_sends_nothing(world: World) -> None:
    connection = world.connect()
    PROOF.save(connection, [world.record()])
    connection.rollback()
    assert world.column(ROWS) == []
    assert run_recovery(world) == (0, 0)


@pytest.mark.parametrize(
    ("point", "recovered", "again"),
    [
        ("before-database", (0, 0), (0, 0)),
        ("after-database", (0, 1), (1, 0)),
        ("after-kafka", (1, 0), (0, 0)),
    ],
)
def test_recovery_sends_what_the_topic_does_not_show(
    world: World, point: str, recovered: tuple[int, int], again: tuple[int, int]
) -> None:
    world.crash("proof", point)
    assert run_recovery(world) == recovered
    assert world.delivered() == dict.fromkeys(world.purchases(), 1)
    assert run_recovery(world) == again
    assert world.column(ROWS) == []


def test_recovery_leaves_young_rows(world: World) -> None:
    world.crash("proof", "after-database")
    recovered = PROOF.recover(world.connect(), world.producer(transactional=False), world.settings, min_age_s=3600)
    assert recovered == (0, 0)
    assert world.delivered() == {}


def test_rejects_rows_outside_a_transaction(world: World) -> None:
    with pytest.raises(RefusedError, match="autocommit"):
        PROOF.save(world.connect(autocommit=True), [world.record()])
    assert world.column(ROWS) == []


def test_saves_an_event_once(world: World) -> None:
    connection = world.connect()
    PROOF.save(connection, [world.record("a")])
    with pytest.raises(psycopg.errors.UniqueViolation):
        PROOF.save(connection, [world.record("a")])
