"""The destination topic as proof of delivery: rows exist from the business transaction until the proof."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.integration.sending.producing_support import World, world

from outbox_events import Deliveries, DeliveryProof
from outbox_events.errors import ConfigurationError, RefusedError
from outbox_events.waiting import Observation, wait_for

pytestmark = pytest.mark.integration
__all__ = ["world"]

ROWS = "select event_id from unproven_record order by position"
PROOF = DeliveryProof()


def run_recovery(world: World) -> tuple[int, int]:
    producer = world.producer(transactional=False)
    return PROOF.recover(world.connect(), producer, world.settings, min_age_s=0)


def listener_settings(world: World) -> dict[str, object]:
    return {**world.settings, "group.id": world.topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}


@pytest.fixture
def consumer(world: World) -> Iterator[Consumer]:
    consumer = Consumer({**listener_settings(world), "enable.auto.offset.store": False})
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


def test_listener_repeats_a_failed_delete(world: World, consumer: Consumer) -> None:
    world.crash("proof", "none")

    def listen(connection: psycopg.Connection[Any]) -> int:
        """Call until a record has been read. The first calls wait for the assignment of partitions."""

        def poll() -> Observation[int]:
            deleted = PROOF.listen_once(connection, consumer, seconds=0.2)
            return Observation(deleted or None, f"{deleted} rows")

        return wait_for("a record", poll, seconds=30, interval=0)

    lost = world.connect(autocommit=True)
    lost.close()
    with pytest.raises(psycopg.OperationalError):
        listen(lost)
    assert committed_offsets(consumer, world) == 0
    assert listen(world.connect(autocommit=True)) == 1
    assert world.column(ROWS) == []
    assert committed_offsets(consumer, world) == 1


def committed_offsets(consumer: Consumer, world: World) -> int:
    """Commit the stored offsets, and return the sum of the committed offsets."""
    with suppress(KafkaException):  # nothing is stored
        consumer.commit(asynchronous=False)
    partitions = [TopicPartition(world.topic, number) for number in range(2)]
    return sum(max(0, partition.offset) for partition in consumer.committed(partitions, timeout=10))


def test_listener_rejects_a_consumer_that_stores_offsets(world: World) -> None:
    world.crash("proof", "none")
    consumer = Consumer(listener_settings(world))
    consumer.subscribe([world.topic])

    def listen() -> Observation[bool]:
        PROOF.listen_once(world.connect(autocommit=True), consumer, seconds=0.2)
        return Observation(None, "no record")

    with closing(consumer), pytest.raises(ConfigurationError):
        wait_for("a record", listen, seconds=30, interval=0)


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
    with pytest.raises(RefusedError):
        PROOF.save(world.connect(autocommit=True), [world.record()])
    assert world.column(ROWS) == []


def test_saves_an_event_once(world: World) -> None:
    connection = world.connect()
    PROOF.save(connection, [world.record("a")])
    with pytest.raises(psycopg.errors.UniqueViolation):
        PROOF.save(connection, [world.record("a")])
