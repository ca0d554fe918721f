"""The loop of the receiver: order, retries, recoverers, and the state after a crash or an outage."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from threading import Event as StopEvent
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from psycopg import sql
from tests.integration.receiving.service import Service, run_until

from outbox_events import (
    BloomFilter,
    DeadLetterTopic,
    Event,
    ProcessedEvents,
    Receiver,
    ReceiverStoppedError,
    Retries,
    StoredOffsets,
    recoverers,
)
from outbox_events.errors import ConfigurationError, RejectedError
from outbox_events.kafka.record import PRODUCER_SETTINGS

FAST = Retries(attempts=3, first_delay_s=0.05, jitter=0)


def once(service: Service) -> ProcessedEvents[psycopg.Connection]:
    return ProcessedEvents(service.connect)


def test_applies_each_event_once_and_in_order(service: Service) -> None:
    service.handlers.otherwise(service.write_effect)
    events = [(f"k{n % 7}", f"e{n}") for n in range(300)]
    service.send(*events)
    service.send(*events[:100])  # the same ids again
    with service.receiver(once(service)) as receiver:
        run_until(receiver, "400 events", lambda: receiver.counters.received == 400)
        assert receiver.counters.duplicates == 100
        assert set(receiver.lag().values()) == {0}
    effects = service.effects()
    assert sorted(effects) == sorted(event_id for _, event_id in events)
    by_key = defaultdict(list)
    for event_id in effects:
        by_key[int(event_id[1:]) % 7].append(int(event_id[1:]))
    assert all(ids == sorted(ids) for ids in by_key.values())


def test_a_failing_event_keeps_its_key_in_order_and_does_not_stop_other_partitions(service: Service) -> None:
    calls: list[str] = []

    @service.handlers.otherwise
    def fail_twice(event: Event, connection: psycopg.Connection) -> None:
        calls.append(event.event_id)
        if event.event_id == "bad" and calls.count("bad") < 3:
            raise ValueError("the dependency is down")
        service.write_effect(event, connection)

    service.send(("a", "before"), ("a", "bad"), ("a", "after"), partition=0)
    service.send(("b", "other"), partition=1)
    retries = Retries(attempts=3, first_delay_s=0.5, jitter=0)
    with service.receiver(once(service), retries=retries, batch_size=1) as receiver:
        run_until(receiver, "four effects", lambda: len(service.effects()) == 4)
        assert receiver.counters.retries == 2
    effects = service.effects()
    assert [event_id for event_id in effects if event_id != "other"] == ["before", "bad", "after"]
    assert effects.index("other") < effects.index("bad")


@pytest.mark.parametrize("batch_size", [1, 100])
def test_a_poison_event_goes_to_the_dead_letter_topic(
    service: Service, create_topic: Callable[..., str], batch_size: int
) -> None:
    calls: list[str] = []

    @service.handlers.otherwise
    def fail(event: Event, connection: psycopg.Connection) -> None:
        service.write_effect(event, connection)
        calls.append(event.event_id)
        if event.event_id == "poison":
            raise ValueError("first line\nwith a value")

    service.send(("a", "1"), ("a", "poison"), ("a", "2"), partition=0)
    producer = Producer({"bootstrap.servers": service.bootstrap, **PRODUCER_SETTINGS})
    dead_letters = Service(service.bootstrap, service.dsn, create_topic(f"{service.group}.dead-letter"))
    dead_letters.handlers.otherwise(dead_letters.write_effect)
    options = {"retries": FAST, "recoverer": DeadLetterTopic(producer, dead_letters.topic), "batch_size": batch_size}
    with service.receiver(once(service), **options) as receiver:
        run_until(receiver, "the events", lambda: service.effects() == ["1", "2"])
        assert receiver.counters.recovered == 1
    assert calls.count("poison") == (3 if batch_size == 1 else 4)
    found: list[Event] = []
    dead_letters.handlers.on("Changed")(lambda event, _: found.append(event))
    with dead_letters.receiver(once(dead_letters)) as reader:
        run_until(reader, "the dead letter", lambda: bool(found))
    (dead_letter,) = found
    assert (dead_letter.key, dead_letter.raw_value, dead_letter.event_id) == (b"a", b"poison", "poison")
    assert dead_letter.headers["dead_letter_reason"] == "ValueError"
    assert dead_letter.headers["dead_letter_message"].startswith("ValueError: test_receiver.py, line ")
    place = [
        dead_letter.headers[f"dead_letter_{name}"] for name in ("topic", "partition", "offset", "attempts", "group")
    ]
    assert place == [service.topic, "0", "1", "3", service.group]


def test_stop_leaves_the_event_and_everything_after_it(service: Service) -> None:
    broken = True

    @service.handlers.otherwise
    def fail(event: Event, connection: psycopg.Connection) -> None:
        if broken and event.event_id == "2":
            raise ValueError("broken")
        service.write_effect(event, connection)

    for partition in range(3):
        service.send(*((f"k{partition}", str(3 * n + partition)) for n in range(20)), partition=partition)
    with service.receiver(once(service), retries=Retries(attempts=1)) as receiver:
        with pytest.raises(ReceiverStoppedError):
            receiver.run(StopEvent(), poll_s=0.1)
        with pytest.raises(ReceiverStoppedError):
            receiver.run(StopEvent(), poll_s=0.1)  # nothing was skipped
        broken = False
        run_until(receiver, "60 effects", lambda: len(service.effects()) >= 60)
    assert sorted(map(int, service.effects())) == list(range(60))


def test_another_attempt_gets_the_event_as_it_was_received(service: Service) -> None:
    """A handler can change the decoded value and the headers, and the transaction of a batch is then rolled back."""
    failures: list[Any] = []

    @service.handlers.otherwise
    def change(event: Event, connection: psycopg.Connection) -> None:
        event.value["id"] += "!"
        event.headers["event_id"] += "!"  # type: ignore[index]
        service.write_effect(event, connection)
        if event.value["id"] == "bad!":
            raise ValueError("broken")

    def recover(failure: recoverers.Failure, _: object, /) -> None:
        failures.append(failure.event.value.pop("id"))
        if len(failures) < 2:
            raise ConnectionError("dead letter topic is down")

    service.send(("a", "1"), ("a", "bad"), ("a", "2"), partition=0)
    options = {"retries": FAST, "recoverer": recover, "decode": lambda event: {"id": event.raw_value.decode()}}
    with service.receiver(once(service), **options) as receiver:
        run_until(receiver, "the effects", lambda: service.effects() == ["1!", "2!"])
    assert failures == ["bad", "bad"]


def test_a_failing_recoverer_is_repeated(service: Service) -> None:
    service.send(("a", "poison"), ("a", "next"), partition=0)
    failures: list[int] = []

    @service.handlers.otherwise
    def fail(event: Event, connection: psycopg.Connection) -> None:
        if event.event_id == "poison":
            raise ValueError("broken")
        service.write_effect(event, connection)

    def recover(failure: recoverers.Failure, _: object, /) -> None:
        failures.append(failure.attempts)
        if len(failures) < 4:
            raise ConnectionError("dead letter topic is down")

    with service.receiver(once(service), retries=FAST, recoverer=recover) as receiver:
        run_until(receiver, "the next event", lambda: service.effects() == ["next"])
        assert receiver.counters.recoverer_errors == 3
    assert failures == [3, 3, 3, 3]


@pytest.mark.parametrize("kind", [StoredOffsets, BloomFilter])
@pytest.mark.parametrize("batch_size", [1, 100])
def test_a_recovered_event_is_not_applied_after_later_events(
    service: Service, kind: type[Any], batch_size: int
) -> None:
    """A process can end after it has recovered an event, and before it commits the offset to Kafka."""
    is_broken = True

    @service.handlers.otherwise
    def handle(event: Event, connection: psycopg.Connection) -> None:
        if event.event_id == "1" and is_broken:
            raise ValueError("broken")
        service.write_effect(event, connection)

    service.send(("a", "1"), ("a", "2"), partition=0)
    options = {"retries": FAST, "recoverer": recoverers.log_and_continue, "batch_size": batch_size}
    with service.receiver(kind(service.connect, service.group), **options) as receiver:
        run_until(receiver, "the second event", lambda: service.effects() == ["2"])
    is_broken = False
    service.send(("a", "3"), partition=0)
    # Another group of Kafka has no committed offsets, as after a crash.
    again = {"group.id": f"{service.group}-again"}
    with service.receiver(kind(service.connect, service.group), settings=again, **options) as receiver:
        run_until(receiver, "the third event", lambda: service.effects() == ["2", "3"])
        service.send(("a", "1"), partition=0)  # a replay of the dead letter
        run_until(receiver, "the replayed event", lambda: service.effects() == ["2", "3", "1"])


def test_an_interrupt_loses_and_repeats_nothing(service: Service) -> None:
    interrupted: list[str] = []

    @service.handlers.otherwise
    def interrupt(event: Event, connection: psycopg.Connection) -> None:
        service.write_effect(event, connection)
        if event.event_id == "17" and not interrupted:
            interrupted.append(event.event_id)
            raise KeyboardInterrupt

    service.send(*((f"k{n}", str(n)) for n in range(40)))
    strategy = once(service)
    with service.receiver(strategy) as receiver:
        with pytest.raises(KeyboardInterrupt):
            receiver.run(StopEvent(), poll_s=0.1)
        run_until(receiver, "40 effects", lambda: len(service.effects()) >= 40)
    assert sorted(map(int, service.effects())) == list(range(40))


def test_waits_for_the_database_without_counting_attempts(service: Service) -> None:
    service.handlers.otherwise(service.write_effect)
    service.send(*((f"k{n}", str(n)) for n in range(30)))
    down = [True] * 8

    def connect() -> psycopg.Connection:
        if down:
            down.pop()
            return psycopg.connect("host=127.0.0.1 port=1 dbname=nothing")
        return service.connect()

    strategy = ProcessedEvents(connect, service.group)
    with service.receiver(strategy, retries=Retries(attempts=2, first_delay_s=0.01, jitter=0)) as receiver:
        run_until(receiver, "30 effects", lambda: len(service.effects()) >= 30)
        assert receiver.counters.recovered == 0
    assert sorted(map(int, service.effects())) == list(range(30))


def test_opens_a_new_connection_after_the_server_ended_it(service: Service) -> None:
    service.handlers.otherwise(service.write_effect)
    service.send(("a", "1"))
    with service.receiver(once(service), retries=FAST) as receiver:
        run_until(receiver, "the first effect", lambda: service.effects() == ["1"])
        with psycopg.connect(service.dsn, autocommit=True) as admin:
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()"
            )
        service.send(("a", "2"))
        run_until(receiver, "the second effect", lambda: service.effects() == ["1", "2"])


def test_a_paused_partition_is_received_after_a_rebalance(service: Service) -> None:
    broken = True

    @service.handlers.otherwise
    def fail(event: Event, connection: psycopg.Connection) -> None:
        if broken:
            raise ValueError("broken")
        service.write_effect(event, connection)

    service.send(("a", "1"), partition=0)
    late = Retries(attempts=9, first_delay_s=3600, jitter=0)
    with service.receiver(once(service), retries=late) as first:
        run_until(first, "the failure", lambda: first.counters.retries == 1)
        with service.receiver(once(service), retries=late) as second:

            def has_joined() -> bool:
                second.poll(0.1)
                return bool(second.consumer.assignment())

            run_until(first, "the rebalance", has_joined)
        broken = False
        run_until(first, "the effect", lambda: service.effects() == ["1"])


def test_a_duplicate_is_handled_after_its_event(service: Service) -> None:
    calls: list[str] = []
    service.handlers.otherwise(lambda event, _: calls.append(f"event {event.event_id}"))
    service.handlers.on_duplicate(lambda event, _: calls.append(f"duplicate {event.event_id}"))
    service.send(("a", "1"), ("a", "1"), partition=0)
    with service.receiver(once(service)) as receiver:
        run_until(receiver, "both", lambda: len(calls) == 2)
    assert calls == ["event 1", "duplicate 1"]


def test_a_missing_topic_is_an_error(service: Service) -> None:
    service.topic = f"missing-{uuid4().hex[:8]}"
    with service.receiver(once(service)) as receiver, pytest.raises(RejectedError) as caught:
        run_until(receiver, "never", lambda: False)
    assert service.topic in caught.value.message
    assert any("outbox apply" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("batch_size", [1, 100])
def test_a_missing_table_stops_the_receiver_and_creates_no_dead_letters(service: Service, batch_size: int) -> None:
    """No event is the cause, and the recoverer would be called for every event."""
    table = f"effect_{uuid4().hex[:8]}"

    @service.handlers.otherwise
    def write(event: Event, connection: psycopg.Connection) -> None:
        connection.execute(sql.SQL("insert into {} values ({})").format(sql.Identifier(table), event.event_id))

    service.send(*(("a", str(number)) for number in range(5)), partition=0)
    options = {"retries": FAST, "recoverer": recoverers.log_and_continue, "batch_size": batch_size}
    with service.receiver(once(service), **options) as receiver:
        with pytest.raises(ReceiverStoppedError, match=f'"{table}" does not exist'):
            receiver.run(StopEvent(), poll_s=0.1)
        with psycopg.connect(service.dsn) as connection:
            connection.execute(sql.SQL("create table {} (event_id text)").format(sql.Identifier(table)))
        run_until(receiver, "the events", lambda: receiver.counters.handled == 5)
        assert receiver.counters.recovered == 0


@pytest.mark.parametrize("strategy", [ProcessedEvents, StoredOffsets])
def test_a_missing_table_of_the_strategy_names_the_next_step(service: Service, strategy: type[Any]) -> None:
    service.handlers.otherwise(service.write_effect)
    service.send(("a", "1"))
    with service.receiver(strategy(service.connect, table="public.nowhere")) as receiver:
        with pytest.raises(ReceiverStoppedError, match=r"public\.nowhere") as caught:
            receiver.run(StopEvent(), poll_s=0.1)
        assert "create_table_sql" in (caught.value.hint or "")


def test_refuses_arguments_with_which_nothing_would_be_applied(service: Service) -> None:
    with pytest.raises(ConfigurationError, match="batch_size"):
        service.receiver(once(service), batch_size=0)
    with pytest.raises(ConfigurationError, match=r"bootstrap\.servers"):
        service.receiver(once(service), settings={"bootstrap.servers": ""})
    with pytest.raises(ConfigurationError, match="connect"):
        ProcessedEvents(service.dsn)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="start"):
        StoredOffsets(service.connect, start="middle")  # type: ignore[arg-type]
    for topics in ([], [""], service.topic):
        with pytest.raises(ConfigurationError, match="topics"):
            Receiver(service.settings(), topics, once(service), service.handlers)


def test_stop_ends_the_receiver_also_if_no_transaction_can_be_opened(service: Service) -> None:
    def connect() -> psycopg.Connection:
        raise ValueError("broken")

    service.send(("a", "1"))
    with service.receiver(ProcessedEvents(connect), retries=FAST) as receiver, pytest.raises(ReceiverStoppedError):
        run_until(receiver, "never", lambda: False)


class FailingSeek:
    """A consumer whose next seek fails."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._error: KafkaException | None = KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def seek(self, place: TopicPartition) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
        self._consumer.seek(place)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._consumer, name)


def test_an_event_is_not_skipped_if_the_consumer_cannot_go_back_to_it(service: Service) -> None:
    calls: list[str] = []

    @service.handlers.otherwise
    def fail_once(event: Event, connection: psycopg.Connection) -> None:
        calls.append(event.event_id)
        if calls == ["1"]:
            raise ValueError("broken")
        service.write_effect(event, connection)

    service.send(("a", "1"), ("a", "2"), partition=0)
    with service.receiver(once(service), retries=FAST, batch_size=1) as receiver:
        receiver.paused._consumer = FailingSeek(receiver.consumer)  # type: ignore[assignment]
        with pytest.raises(KafkaException):
            run_until(receiver, "never", lambda: False)
        run_until(receiver, "the effects", lambda: service.effects() == ["1", "2"])


def test_the_lag_of_a_paused_partition_includes_the_event_that_waits(service: Service) -> None:
    @service.handlers.otherwise
    def fail(event: Event, _: psycopg.Connection) -> None:
        raise ValueError(event.event_id)

    service.send(*(("a", str(number)) for number in range(5)), partition=0)
    late = Retries(attempts=9, first_delay_s=3600, jitter=0)
    with service.receiver(once(service), retries=late) as receiver:
        run_until(receiver, "the failure", lambda: receiver.counters.retries == 1)
        assert receiver.lag()[service.topic, 0] == 5


def test_consumers_with_different_group_ids_can_share_ids(service: Service) -> None:
    service.handlers.otherwise(service.write_effect)
    service.send(("a", "1"))
    with service.receiver(once(service)) as receiver:
        run_until(receiver, "the event", lambda: receiver.counters.handled == 1)
    renamed = {"group.id": f"{service.group}-renamed"}
    with service.receiver(ProcessedEvents(service.connect, service.group), settings=renamed) as receiver:
        run_until(receiver, "the duplicate", lambda: receiver.counters.duplicates == 1)
    with service.receiver(once(service), settings=renamed) as receiver:
        service.send(("a", "2"))
        run_until(receiver, "the event", lambda: receiver.counters.received == 1)
    with service.connect() as connection:
        query = "select consumer_group from processed_event where event_id = %s"
        claimed = connection.execute(query, [f"{service.topic}:2"]).fetchall()
    assert (renamed["group.id"],) in claimed


def test_refuses_settings_that_would_leave_offsets_uncommitted(service: Service) -> None:
    for name in ("enable.auto.commit", "enable.auto.offset.store"):
        value = name != "enable.auto.commit"
        with pytest.raises(ConfigurationError, match=name):
            service.receiver(once(service), settings={name: value})


@pytest.mark.parametrize("batch_size", [1, 100])
def test_receives_tombstones(service: Service, batch_size: int) -> None:
    received: list[Event] = []
    service.handlers.otherwise(lambda event, _: received.append(event))
    producer = Producer({"bootstrap.servers": service.bootstrap, **PRODUCER_SETTINGS})
    for number in range(3):
        producer.produce(service.topic, key="a", value=None, headers=[("event_id", str(number).encode())])
    assert producer.flush(60) == 0
    with service.receiver(once(service), batch_size=batch_size) as receiver:
        run_until(receiver, "the tombstones", lambda: len(received) == 3)
    assert [(event.event_id, event.value) for event in received] == [("0", None), ("1", None), ("2", None)]


def test_events_of_two_topics_can_have_equal_ids(service: Service, create_topic: Callable[..., str]) -> None:
    other = Service(service.bootstrap, service.dsn, create_topic())
    handled: list[tuple[str, str]] = []
    service.handlers.otherwise(lambda event, _: handled.append((event.topic, event.event_id)))
    ids = ["0", "1", "2"]
    for each in (service, other):
        each.send(*(("a", event_id) for event_id in ids))
        each.send(("a", "0"))  # produced twice
    topics = [service.topic, other.topic]
    with Receiver(service.settings(), topics, once(service), service.handlers) as receiver:
        run_until(receiver, "the events", lambda: receiver.counters.received == 8)
    assert sorted(handled) == sorted((topic, event_id) for topic in topics for event_id in ids)


def test_a_dead_letter_is_sent_once_however_often_its_transaction_fails(
    service: Service, create_topic: Callable[..., str]
) -> None:
    """The dead letter is on its topic before the transaction of the strategy commits. Its value is masked each time."""
    producer = Producer({"bootstrap.servers": service.bootstrap, **PRODUCER_SETTINGS})
    topic = create_topic(f"{service.group}.dead-letter", partitions=1)
    send = DeadLetterTopic(producer, topic)
    calls: list[str] = []

    def recover(failure: recoverers.Failure, connection: psycopg.Connection, /) -> None:
        masked = replace(failure.event, raw_value=os.urandom(8))
        send(replace(failure, event=masked), connection)
        calls.append(failure.event.event_id)
        if len(calls) < 4:
            connection.execute("select pg_terminate_backend(pg_backend_pid())")

    @service.handlers.otherwise
    def fail(event: Event, _: psycopg.Connection) -> None:
        raise ValueError(event.event_id)

    service.send(("a", "1"), ("a", "2"), partition=0)
    options = {"retries": Retries(attempts=1, first_delay_s=0.01), "recoverer": recover, "batch_size": 1}
    with service.receiver(StoredOffsets(service.connect), **options) as receiver:
        run_until(receiver, "both events", lambda: receiver.counters.recovered == 2)
        _, end = receiver.consumer.get_watermark_offsets(TopicPartition(topic, 0))
    assert (calls, end) == (["1", "1", "1", "1", "2"], 2)
