"""The destination topic as proof of delivery: rows exist from the business transaction until the proof."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from threading import Event as StopEvent
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from psycopg.pq import TransactionStatus
from tests.integration.sending.producing_support import World, world

from outbox_events import Deliveries, DeliveryListener, DeliveryProof, InvalidEventError, ProofSender, Recovered, fence
from outbox_events.errors import ConfigurationError, RefusedError, WaitTimeoutError
from outbox_events.limited_calls import ClientStuckError
from outbox_events.producing import delivery_listener, delivery_proof
from outbox_events.producing.delivered import CLOCK_MARGIN_S, Found, find_delivered
from outbox_events.producing.delivery_listener import BATCH_S, CLOSE_S
from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack import Stack
from outbox_lab.drill.components import ServiceComponent

pytestmark = pytest.mark.integration
__all__ = ["world"]

ROWS = "select event_id from unproven_record order by position"
PROOF = DeliveryProof()


def run_recovery(world: World, proof: DeliveryProof = PROOF, *, seconds: float = 30) -> Recovered:
    producer = world.producer(transactional=False)
    return proof.recover(world.connect(), producer, world.settings, min_age_s=0, seconds=seconds)


def save(world: World, *event_ids: str, proof: DeliveryProof = PROOF, topic: str = "") -> None:
    with world.connect() as connection:
        proof.save(connection, [world.record(event_id, topic=topic) for event_id in event_ids])


def send(world: World, *event_ids: str) -> None:
    deliveries = Deliveries(world.producer(transactional=False))
    for event_id in event_ids:
        deliveries.send(world.record(event_id))
    deliveries.wait()


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
    assert run_recovery(world) == Recovered()


def test_a_record_that_could_not_be_sent_rolls_the_block_back(world: World) -> None:
    sender = ProofSender(world.connect(), world.producer(transactional=False), PROOF)
    large = replace(world.record("large"), value=bytes(2_000_000))
    with pytest.raises(InvalidEventError, match="2000"), sender.transaction() as transaction:
        list(map(transaction.send, (world.record("small"), large)))
    assert (world.column(ROWS), world.delivered()) == ([], {})


@pytest.mark.parametrize(
    ("point", "recovered", "again"),
    [
        ("before-database", Recovered(), Recovered()),
        ("after-database", Recovered(resent=1), Recovered(proven=1)),
        ("after-kafka", Recovered(proven=1), Recovered()),
    ],
)
def test_recovery_sends_what_the_topic_does_not_show(
    world: World, point: str, recovered: Recovered, again: Recovered
) -> None:
    world.crash("proof", point)
    assert run_recovery(world) == recovered
    assert world.delivered() == dict.fromkeys(world.purchases(), 1)
    assert run_recovery(world) == again
    assert world.column(ROWS) == []


def test_recovery_leaves_young_rows(world: World) -> None:
    world.crash("proof", "after-database")
    recovered = PROOF.recover(world.connect(), world.producer(transactional=False), world.settings, min_age_s=3600)
    assert recovered == Recovered(skipped=len(world.purchases()))
    assert world.delivered() == {}


def test_row_of_another_service_or_with_a_missing_topic_does_not_block(world: World) -> None:
    missing = f"{world.topic}-missing"
    save(world, "other", proof=DeliveryProof(sender="other"), topic=f"{world.topic}-other")
    save(world, "lost")
    save(world, "elsewhere", topic=missing)
    assert run_recovery(world) == Recovered(resent=1, missing_topics=(missing,))
    assert world.delivered() == {"lost": 1}
    assert world.column(ROWS) == ["other", "lost", "elsewhere"]


def test_record_that_the_client_rejects_does_not_block_other_records(world: World) -> None:
    large = replace(world.record("large"), value=bytes(2_000_000))
    with world.connect() as connection:
        DeliveryProof(max_record_bytes=3_000_000).save(connection, [large, world.record("small")])
    recovered = run_recovery(world)
    assert (recovered.resent, recovered.rejected) == (1, ("large",))
    assert run_recovery(world).proven == 1
    assert world.column(ROWS) == ["large"]


def test_concurrent_recoveries_send_a_record_once(world: World) -> None:
    save(world, *(str(number) for number in range(20)))
    with ThreadPoolExecutor(4) as executor:
        results = [run.result() for run in [executor.submit(run_recovery, world) for _ in range(4)]]
    assert sorted((result.resent, result.proven) for result in results) == [(0, 0), (0, 0), (0, 20), (20, 0)]
    assert world.delivered() == {str(number): 1 for number in range(20)}


def test_recovery_reads_outside_a_transaction(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open snapshot would hold back vacuum."""
    save(world, "lost")
    connection = world.connect()
    status: list[TransactionStatus] = []

    def find(*arguments: Any, **options: Any) -> Found:  # noqa: ANN401 - as the replaced function
        status.append(connection.info.transaction_status)
        return find_delivered(*arguments, **options)

    monkeypatch.setattr(delivery_proof, "find_delivered", find)
    PROOF.recover(connection, world.producer(transactional=False), world.settings, min_age_s=0)
    assert status == [TransactionStatus.IDLE]


class TestOrder:
    """A recovery does not send the old state of a key to a compacted topic."""

    @pytest.mark.parametrize("is_compacted", [True, pytest.param(False, marks=pytest.mark.long)])
    def test_newer_record_was_delivered(self, world: World, *, is_compacted: bool) -> None:
        if is_compacted:
            world.compact()
        save(world, "old")
        save(world, "new")
        send(world, "new")
        with world.connect() as connection:
            assert PROOF.delete(connection, ["new"]) == 1
        assert run_recovery(world) == (Recovered(superseded=("old",)) if is_compacted else Recovered(resent=1))
        assert world.delivered() == {"new": 1} if is_compacted else {"old": 1, "new": 1}
        assert world.column(ROWS) == ([] if is_compacted else ["old"])

    def test_newer_record_is_saved_but_not_delivered(self, world: World) -> None:
        world.compact()
        save(world, "old", "new")
        assert run_recovery(world) == Recovered(resent=1, superseded=("old",))
        assert world.delivered() == {"new": 1}
        assert world.column(ROWS) == ["new"]

    def test_recovery_waits_for_a_transaction_that_has_saved_a_newer_record(self, world: World) -> None:
        world.compact()
        save(world, "old")
        connection = world.connect()
        PROOF.save(connection, [world.record("new")])
        with ThreadPoolExecutor(1) as executor:
            recovery = executor.submit(run_recovery, world)
            wait_for("the lock request of the recovery", partial(waiting_sessions, world), seconds=30)
            connection.commit()
            assert recovery.result(timeout=60) == Recovered(superseded=("old",), skipped=1)
        assert world.delivered() == {}
        assert world.column(ROWS) == ["new"]


def waiting_sessions(world: World) -> Observation[int]:
    waiting = "select pid from pg_locks where locktype = 'advisory' and not granted"
    return Observation(len(world.column(waiting)) or None, "no session waits")


class TestSearch:
    def test_begins_at_the_time_of_the_first_row(self, world: World) -> None:
        producer = world.producer(transactional=False)
        for event_id, age_s in (("old", 3 * CLOCK_MARGIN_S), ("new", 0)):
            timestamp = round((time.time() - age_s) * 1000)
            producer.produce(world.topic, b"value", b"key", timestamp=timestamp, headers=[("event_id", event_id)])
        assert producer.flush(30) == 0
        searched = [(world.topic, "old"), (world.topic, "new")]
        assert find_delivered(world.settings, searched, time.time()).event_ids == {"new"}
        assert find_delivered(world.settings, searched, time.time() - 3 * CLOCK_MARGIN_S).event_ids == {"old", "new"}

    def test_open_transaction_of_another_producer_only_delays_records_after_it(self, world: World) -> None:
        send(world, "before")
        other = world.producer()
        fence(other)
        other.begin_transaction()
        for partition in range(2):
            other.produce(world.topic, b"value", b"key", partition=partition, headers=[("event_id", "open")])
        assert other.flush(30) == 0

        def find(*event_ids: str) -> set[str]:
            searched = [(world.topic, event_id) for event_id in event_ids]
            return find_delivered(world.settings, searched, time.time(), seconds=2).event_ids

        assert find("before", "never") == {"before"}
        send(world, "after")
        with pytest.raises(WaitTimeoutError):
            find("after")
        other.abort_transaction(30)
        assert find("open", "after") == {"after"}


class TestListener:
    def test_rolls_back_a_failed_delete(self, world: World, consumer: Consumer) -> None:
        world.crash("proof", "none")
        connection = world.connect()

        def listen() -> Observation[int]:
            return Observation(PROOF.listen_once(connection, consumer, seconds=0.2) or None, "no record")

        with world.connect(autocommit=True) as admin:
            admin.execute("alter table unproven_record rename to renamed")
            with pytest.raises(psycopg.errors.UndefinedTable):
                wait_for("a record", listen, seconds=30, interval=0)
            admin.execute("alter table renamed rename to unproven_record")
        assert wait_for("the record again", listen, seconds=30, interval=0) == 1
        assert world.column(ROWS) == []

    def test_connects_again_and_stops(self, world: World) -> None:
        opened: list[psycopg.Connection[Any]] = []

        def connect() -> psycopg.Connection[Any]:
            opened.append(world.connect())
            return opened[-1]

        def wait_for_rows() -> None:
            wait_for("the proof", lambda: Observation(not world.column(ROWS) or None, "rows"), seconds=30, interval=0.1)

        listener = DeliveryListener(PROOF, connect, listener_settings(world), [world.topic])
        stop = StopEvent()
        with ThreadPoolExecutor(1) as executor:
            run = executor.submit(listener.run, stop, poll_s=0.2)
            try:
                save(world, "first")
                send(world, "first")
                wait_for_rows()
                pid = opened[0].info.backend_pid
                world.connect(autocommit=True).execute("select pg_terminate_backend(%s, 10000)", [pid])
                save(world, "second")
                send(world, "second")
                wait_for_rows()
            finally:
                stop.set()
            run.result(timeout=30)
        assert (listener.counters.proven, listener.counters.errors) == (2, 1)
        assert set(listener.lag.values()) == {0}
        assert opened[-1].closed

    def test_ends_if_a_batch_does_not_end(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(delivery_listener, "BATCH_S", 1.0)
        save(world, "first")
        send(world, "first")
        listener = DeliveryListener(PROOF, world.connect, listener_settings(world), [world.topic])
        with world.connect() as locking:
            locking.execute("lock table unproven_record")
            with pytest.raises(ClientStuckError):
                listener.run(StopEvent(), poll_s=0.2)

    def test_ends_if_a_new_connection_cannot_repair_the_error(self, world: World) -> None:
        settings = listener_settings(world)
        with pytest.raises(ConfigurationError, match="not a function"):
            DeliveryListener(PROOF, world.connect(), settings, [world.topic])
        with pytest.raises(ConfigurationError, match="returned NoneType"):
            DeliveryListener(PROOF, lambda: None, settings, [world.topic]).run(StopEvent())
        for wrong in ({"bogus": "1"}, {"session.timeout.ms": "text"}):
            with pytest.raises(ConfigurationError, match="settings of the listener"):
                DeliveryListener(PROOF, world.connect, {**settings, **wrong}, [world.topic]).run(StopEvent())

    def test_connects_again_after_it_has_reached_a_read_only_server(self, world: World) -> None:
        """After a failover, an address can lead to the old primary for a while."""
        save(world, "first")
        send(world, "first")
        opened: list[psycopg.Connection[Any]] = []

        def connect() -> psycopg.Connection[Any]:
            opened.append(world.connect())
            opened[-1].read_only = len(opened) == 1
            return opened[-1]

        listener, stop = DeliveryListener(PROOF, connect, listener_settings(world), [world.topic]), StopEvent()
        with ThreadPoolExecutor(1) as executor:
            run = executor.submit(listener.run, stop, poll_s=0.2)
            try:
                wait_for("the proof", lambda: Observation(not world.column(ROWS) or None, "rows"), seconds=30)
            finally:
                stop.set()
            run.result(timeout=30)
        assert listener.counters.errors == 1


@pytest.mark.long
def test_listener_stops_while_the_broker_is_frozen(world: World, stack: Stack) -> None:
    broker = ServiceComponent(stack, "kafka")
    listener = DeliveryListener(PROOF, world.connect, listener_settings(world), [world.topic])
    stop = StopEvent()
    save(world, "first")
    send(world, "first")
    with ThreadPoolExecutor(1) as executor:
        run = executor.submit(listener.run, stop, poll_s=0.2)
        try:
            wait_for("the proof", lambda: Observation(not world.column(ROWS) or None, "rows"), seconds=30)
            broker.signal(signal.SIGSTOP)
            stop.set()
            run.result(timeout=0.2 + BATCH_S + CLOSE_S)
        finally:
            stop.set()
            broker.signal(signal.SIGCONT)


def test_refuses_a_record_without_a_key(world: World) -> None:
    with pytest.raises(InvalidEventError, match="has no key"):
        PROOF.save(world.connect(), [replace(world.record(), key=None)])


def test_rejects_rows_outside_a_transaction(world: World) -> None:
    with pytest.raises(RefusedError):
        PROOF.save(world.connect(autocommit=True), [world.record()])
    assert world.column(ROWS) == []


def test_saves_an_event_once(world: World) -> None:
    connection = world.connect()
    PROOF.save(connection, [world.record("a")])
    with pytest.raises(psycopg.errors.UniqueViolation):
        PROOF.save(connection, [world.record("a")])
