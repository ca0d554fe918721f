"""Positions in the database: each record is applied once, whatever happens to consumers, group and topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from threading import Event as Signal
from threading import Thread

import psycopg
import pytest
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session, sessionmaker
from tests.integration.receiving.service import SECONDS, Service, run_until
from tests.integration.receiving.strategies.crashes import committed, crash, crashing, create_again, events

from outbox_events import (
    BloomFilter,
    Event,
    KafkaTransaction,
    Receiver,
    ReceiverStoppedError,
    Record,
    Retries,
    StoredOffsets,
    fence,
    recoverers,
)
from outbox_events.errors import RefusedError
from outbox_events.receiving.recoverers import Failure
from outbox_events.waiting import Observation, wait_for

POSITIONS = "select sum(next_offset) from consumer_offset where consumer_group = %s"
WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


@pytest.fixture
def stored(service: Service) -> StoredOffsets[psycopg.Connection]:
    service.handlers.otherwise(service.write_effect)
    return StoredOffsets(service.connect, service.group)


@pytest.fixture
def database(service: Service) -> Iterator[psycopg.Connection]:
    with psycopg.connect(service.dsn, autocommit=True) as connection:
        yield connection


def applied(service: Service, count: int) -> bool:
    return len(service.effects()) >= count


def assert_once(service: Service, end: int) -> None:
    assert sorted(map(int, service.effects())) == list(range(end))


def test_continues_at_the_stored_positions(
    service: Service, stored: StoredOffsets[psycopg.Connection], database: psycopg.Connection
) -> None:
    service.send(*events(0, 200))
    with service.receiver(stored) as receiver:
        run_until(receiver, "200 effects", lambda: applied(service, 200))
        run_until(receiver, "the group's commit", lambda: sum(committed(receiver).values()) == 200)
    assert database.execute(POSITIONS, [service.group]).fetchall() == [(200,)]
    service.send(*events(200, 300))
    with service.receiver(StoredOffsets(service.connect, service.group)) as receiver:
        run_until(receiver, "300 effects", lambda: applied(service, 300))
        assert (receiver.counters.received, receiver.counters.duplicates) == (100, 0)
    assert_once(service, 300)


def test_the_settings_can_contain_callbacks(service: Service, stored: StoredOffsets[psycopg.Connection]) -> None:
    statistics: list[str] = []
    callbacks = {"stats_cb": statistics.append, "statistics.interval.ms": 100, "on_commit": lambda *_: None}
    service.send(*events(0, 10))
    with service.receiver(stored, settings=callbacks) as receiver:
        run_until(receiver, "effects and statistics", lambda: bool(statistics) and len(service.effects()) == 10)


def test_a_crash_before_the_offset_commit_repeats_nothing(
    service: Service, stored: StoredOffsets[psycopg.Connection]
) -> None:
    service.send(*events(0, 100), partition=0)
    with crashing(service, stored, batch_size=10) as receiver:
        crash(receiver)
        crash(receiver)  # receives the first batch again
        assert receiver.counters.duplicates > 0
        assert committed(receiver) == {}
    with service.receiver(StoredOffsets(service.connect, service.group)) as receiver:
        run_until(receiver, "100 effects", lambda: applied(service, 100))
        assert receiver.counters.duplicates == 0
    assert_once(service, 100)


def test_a_zombie_waits_and_sees_duplicates(service: Service, database: psycopg.Connection) -> None:
    reached, released = Signal(), Signal()

    @service.handlers.otherwise
    def block(event: Event, connection: psycopg.Connection) -> None:
        service.write_effect(event, connection)
        reached.set()
        assert released.wait(SECONDS)

    def consumer(name: str) -> Receiver[psycopg.Connection]:
        """Start a consumer in a separate group, so that both consumers have the partition, at the same position."""
        strategy = StoredOffsets(service.connect, service.group)
        receiver = service.receiver(strategy, settings={"group.id": f"{service.group}-{name}"})
        run_until(receiver, "the assignment", lambda: len(receiver.consumer.assignment()) == 3)
        return receiver

    first, second = consumer("first"), consumer("second")
    service.send(("a", "0"), ("a", "1"), partition=0)

    def receive(receiver: Receiver[psycopg.Connection]) -> None:
        run_until(receiver, "the events", lambda: receiver.counters.handled + receiver.counters.duplicates == 2)

    threads = [Thread(target=receive, args=[receiver]) for receiver in (first, second)]
    threads[0].start()
    assert reached.wait(SECONDS)
    threads[1].start()

    def waits() -> Observation[bool]:
        ((count,),) = database.execute(WAITING).fetchall()
        return Observation(True if count else None, f"{count} waiting")

    try:
        wait_for("the lock", waits, seconds=SECONDS)
    finally:
        released.set()
        for thread in threads:
            thread.join(SECONDS)
    assert service.effects() == ["0", "1"]
    assert second.counters.duplicates > 0
    first.close()
    second.close()


def test_a_rebalance_moves_partitions_without_loss_or_repetition(
    service: Service, stored: StoredOffsets[psycopg.Connection]
) -> None:
    service.send(*events(0, 300))
    first = service.receiver(stored, batch_size=7)
    run_until(first, "the first effects", lambda: applied(service, 50))
    second = service.receiver(StoredOffsets(service.connect, service.group), batch_size=7)

    sent = 300

    def both_apply() -> bool:
        nonlocal sent
        service.send(*events(sent, sent + 10), partition=sent // 10 % 3)
        sent += 10
        second.poll(0.1)
        return second.counters.handled > 0 and bool(first.consumer.assignment())

    run_until(first, "effects of both", both_apply)
    second.close()
    run_until(first, f"{sent} effects", lambda: applied(service, sent))
    first.close()
    assert_once(service, sent)


def test_a_recreated_topic_is_refused(
    service: Service, admin: AdminClient, stored: StoredOffsets[psycopg.Connection], database: psycopg.Connection
) -> None:
    service.send(*events(0, 10))
    with service.receiver(stored) as receiver:
        run_until(receiver, "10 effects", lambda: applied(service, 10))
    create_again(admin, service.topic)
    service.send(*events(10, 40))
    with service.receiver(StoredOffsets(service.connect, service.group)) as receiver:
        with pytest.raises(RefusedError, match=rf"topic {service.topic}, partition \d: .*created again") as raised:
            run_until(receiver, "never", lambda: False)
        assert "consumer_offset" in raised.value.hint
        with pytest.raises(RefusedError):  # it does not continue at the group's offset, either
            run_until(receiver, "never", lambda: False, seconds=20)
    assert_once(service, 10)
    database.execute("delete from consumer_offset where topic = %s", [service.topic])
    with service.receiver(StoredOffsets(service.connect, service.group)) as receiver:
        run_until(receiver, "40 effects", lambda: applied(service, 40))
    assert_once(service, 40)


def test_deleted_records_after_the_position_are_refused(
    service: Service, admin: AdminClient, stored: StoredOffsets[psycopg.Connection], database: psycopg.Connection
) -> None:
    service.send(*events(0, 3), partition=1)
    with service.receiver(stored) as receiver:
        run_until(receiver, "3 effects", lambda: applied(service, 3))
    service.send(*events(3, 8), partition=1)
    place = TopicPartition(service.topic, 1, 5)
    admin.delete_records([place])[place].result(SECONDS)
    with service.receiver(StoredOffsets(service.connect, service.group)) as receiver:
        message = f"topic {service.topic}, partition 1: the stored position 3 is before the first offset 5"
        with pytest.raises(RefusedError, match=message) as raised:
            run_until(receiver, "never", lambda: False)
    assert "set next_offset in public.consumer_offset to 5" in raised.value.hint
    database.execute("update consumer_offset set next_offset = 5 where topic = %s and partition = 1", [service.topic])
    with service.receiver(StoredOffsets(service.connect, service.group)) as receiver:
        run_until(receiver, "the kept records", lambda: applied(service, 6))
    assert sorted(service.effects()) == ["0", "1", "2", "5", "6", "7"]


@pytest.mark.parametrize("kind", [StoredOffsets, BloomFilter])
def test_a_topic_that_was_emptied_after_a_transaction_marker_is_continued(
    service: Service, admin: AdminClient, database: psycopg.Connection, kind: type[StoredOffsets[psycopg.Connection]]
) -> None:
    service.handlers.otherwise(service.write_effect)
    producer = Producer({"bootstrap.servers": service.bootstrap, "transactional.id": service.group})
    fence(producer)

    def send(number: int) -> None:
        transaction = KafkaTransaction(producer)
        headers = (("event_id", str(number).encode()), ("event_type", b"Changed"))
        transaction.send(Record(service.topic, b"a", b"", headers, 1))
        transaction.commit()

    send(0)
    position = "select next_offset from consumer_offset where consumer_group = %s and partition = 1"
    with service.receiver(kind(service.connect, service.group)) as receiver:
        run_until(receiver, "the end", lambda: database.execute(position, [service.group]).fetchone() == (2,))
        send(2)  # at offset 2
        run_until(receiver, "the next event", lambda: applied(service, 2))
        run_until(receiver, "the end", lambda: database.execute(position, [service.group]).fetchone() == (4,))
    place = TopicPartition(service.topic, 1, OFFSET_END)
    assert admin.delete_records([place])[place].result(SECONDS).low_watermark == 4
    with service.receiver(kind(service.connect, service.group)) as receiver:
        run_until(receiver, "the assignment", lambda: len(receiver.consumer.assignment()) == 3)
        send(4)
        run_until(receiver, "the next event", lambda: applied(service, 3))
    assert service.effects() == ["0", "2", "4"]


def test_a_refused_committed_offset_has_a_row_that_can_be_corrected(
    service: Service, admin: AdminClient, stored: StoredOffsets[psycopg.Connection], database: psycopg.Connection
) -> None:
    service.send(*events(0, 8), partition=1)
    earlier = Consumer({"bootstrap.servers": service.bootstrap, "group.id": service.group})
    with closing(earlier):
        earlier.commit(offsets=[TopicPartition(service.topic, 1, 3)], asynchronous=False)
    place = TopicPartition(service.topic, 1, 5)
    admin.delete_records([place])[place].result(SECONDS)
    with service.receiver(stored) as receiver, pytest.raises(RefusedError):
        run_until(receiver, "never", lambda: False)
    update = "update consumer_offset set next_offset = 5 where topic = %s and partition = 1"
    assert database.execute(update, [service.topic]).rowcount == 1
    with service.receiver(StoredOffsets(service.connect, service.group)) as receiver:
        run_until(receiver, "the kept records", lambda: applied(service, 3))
    assert sorted(service.effects()) == ["5", "6", "7"]


def test_a_position_after_the_end_is_refused(
    service: Service, stored: StoredOffsets[psycopg.Connection], database: psycopg.Connection
) -> None:
    with service.receiver(stored) as receiver:
        run_until(receiver, "the assignment", lambda: len(receiver.consumer.assignment()) == 3)
    database.execute("update consumer_offset set next_offset = 9 where topic = %s and partition = 2", [service.topic])
    again = StoredOffsets(service.connect, service.group)
    message = "partition 2: the stored position 9 is after the end 0"
    with service.receiver(again) as receiver, pytest.raises(RefusedError, match=message):
        run_until(receiver, "never", lambda: False)


def test_a_position_that_moved_back_stops_a_running_receiver(
    service: Service, stored: StoredOffsets[psycopg.Connection], database: psycopg.Connection
) -> None:
    service.send(*events(0, 5), partition=0)
    with service.receiver(stored) as receiver:
        run_until(receiver, "5 effects", lambda: applied(service, 5))
        database.execute("update consumer_offset set next_offset = 2 where topic = %s", [service.topic])
        service.send(("a", "5"), partition=0)
        with pytest.raises(ReceiverStoppedError, match="moved back from 5 to 2"):
            run_until(receiver, "never", lambda: False)
    database.execute("update consumer_offset set next_offset = 0 where topic = %s and partition > 0", [service.topic])
    with service.receiver(StoredOffsets(service.connect, service.group)) as receiver:
        run_until(receiver, "the replay", lambda: applied(service, 9))
    assert service.effects() == ["0", "1", "2", "3", "4", "2", "3", "4", "5"]


def test_an_outage_at_the_assignment_skips_nothing(service: Service) -> None:
    service.handlers.otherwise(service.write_effect)
    service.send(*events(0, 10))
    down = [True] * 3

    def connect() -> psycopg.Connection:
        if down:
            down.pop()
            return psycopg.connect("host=127.0.0.1 port=1 dbname=nothing")
        return service.connect()

    with service.receiver(StoredOffsets(connect, service.group)) as receiver:
        run_until(receiver, "10 effects", lambda: applied(service, 10))
    assert_once(service, 10)


def test_the_position_follows_a_recovered_event(service: Service) -> None:
    @service.handlers.otherwise
    def fail(event: Event, connection: psycopg.Connection) -> None:
        service.write_effect(event, connection)
        if event.event_id == "1":
            raise ValueError("broken")

    service.send(*events(0, 3), partition=0)
    strategy = StoredOffsets(service.connect, service.group)
    options = {"retries": Retries(attempts=1), "recoverer": recoverers.log_and_continue}
    with service.receiver(strategy, **options) as receiver:
        run_until(receiver, "the next event", lambda: service.effects() == ["0", "2"])
        assert receiver.counters.recovered == 1
    service.send(("a", "3"), partition=0)
    with service.receiver(StoredOffsets(service.connect, service.group)) as receiver:
        run_until(receiver, "the last event", lambda: service.effects() == ["0", "2", "3"])
        assert receiver.counters.received == 1


def test_no_recoverer_runs_for_an_event_that_another_consumer_applied(service: Service) -> None:
    is_broken, recovered = [True], list[str]()

    @service.handlers.otherwise
    def write(event: Event, connection: psycopg.Connection) -> None:
        if is_broken:
            raise ValueError
        service.write_effect(event, connection)

    def recover(failure: Failure, _: object, /) -> None:
        recovered.append(failure.event.event_id)
        raise OSError  # the recoverer is called again, later

    def consumer(name: str, **options: object) -> Receiver[psycopg.Connection]:
        strategy = StoredOffsets(service.connect, service.group)
        return service.receiver(strategy, settings={"group.id": f"{service.group}-{name}"}, **options)

    service.send(("a", "0"), partition=0)
    with consumer("zombie", retries=Retries(attempts=1, first_delay_s=0), recoverer=recover) as zombie:
        run_until(zombie, "a failed recovery", lambda: bool(recovered))
        is_broken.clear()
        with consumer("owner") as owner:
            run_until(owner, "the effect", lambda: applied(service, 1))
        run_until(zombie, "the end of the recovery", lambda: zombie.counters.duplicates == 1)
    assert (service.effects(), recovered) == (["0"], ["0"])


def test_sessions_of_sqlalchemy(service: Service) -> None:
    statement = text("insert into effect (consumer_group, event_id) values (:consumer_group, :event_id)")

    @service.handlers.otherwise
    def write(event: Event, session: Session) -> None:  # the handlers have the strategy's context
        session.execute(statement, {"consumer_group": service.group, "event_id": event.event_id})

    service.send(*events(0, 50))
    engine = create_engine("postgresql+psycopg://", creator=service.connect)
    try:
        for _ in range(2):
            with crashing(service, StoredOffsets(sessionmaker(engine), service.group), batch_size=10) as receiver:
                crash(receiver)
        with service.receiver(StoredOffsets(sessionmaker(engine), service.group)) as receiver:
            service.send(*events(50, 60))
            run_until(receiver, "60 effects", lambda: applied(service, 60))
    finally:
        engine.dispose()
    assert_once(service, 60)
