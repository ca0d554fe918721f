"""Bloom filters that are committed with the effects and the positions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.orm import Session, sessionmaker
from tests.integration.receiving.service import Service, run_until
from tests.integration.receiving.strategies.crashes import committed, crash, crashing, events

from outbox_events import BloomFilter, Event, Receiver, Retries, recoverers
from outbox_events.receiving.strategies.bloom.generations import HASH_BYTES

SIZES = """
    select count(*) filter (where is_filter), sum(length(content)) filter (where not is_filter)
    from event_filter where consumer_group = %s"""
Connect = Callable[[Service], Callable[[], Any]]


def with_psycopg(service: Service) -> Callable[[], psycopg.Connection]:
    service.handlers.otherwise(service.write_effect)
    return service.connect


def with_session(service: Service) -> Callable[[], Session]:
    @service.handlers.otherwise
    def write(event: Event, session: Session) -> None:
        statement = text("insert into effect (consumer_group, event_id) values (:group, :id)")
        session.execute(statement, {"group": service.group, "id": event.event_id})

    return sessionmaker(create_engine("postgresql+psycopg://", creator=service.connect, poolclass=NullPool))


def strategy(service: Service, connect: Callable[[], Any] | None = None, **options: Any) -> BloomFilter[Any]:  # noqa: ANN401
    return BloomFilter(connect or service.connect, service.group, **{"capacity": 1000, **options})


def receive(receiver: Receiver[Any], count: int) -> None:
    run_until(receiver, f"{count} events", lambda: receiver.counters.received >= count)


def assert_once(service: Service, end: int) -> None:
    assert sorted(map(int, service.effects())) == list(range(end))


@pytest.mark.parametrize("connect", [with_psycopg, with_session])
def test_a_crash_after_the_commit_repeats_nothing(service: Service, connect: Connect) -> None:
    opened = connect(service)
    service.send(*events(0, 60), *events(0, 20), partition=0)
    with crashing(service, strategy(service, opened), batch_size=10) as receiver:
        crash(receiver)
        assert committed(receiver) == {}
    with service.receiver(strategy(service, opened), batch_size=10) as receiver:
        run_until(receiver, "the duplicates", lambda: receiver.counters.duplicates == 20)
    service.send(*events(50, 80), partition=0)
    with service.receiver(strategy(service, opened)) as receiver:
        receive(receiver, 30)
        assert receiver.counters.duplicates == 10
    assert_once(service, 80)


def test_ids_of_a_transaction_that_was_rolled_back_are_new(service: Service) -> None:
    failures = [ValueError("broken")]

    @service.handlers.otherwise
    def fail_once(event: Event, connection: psycopg.Connection) -> None:
        service.write_effect(event, connection)
        if event.event_id == "3" and failures:
            raise failures.pop()

    service.send(*events(0, 5), partition=0)
    with service.receiver(strategy(service)) as receiver:
        run_until(receiver, "5 effects", lambda: len(service.effects()) >= 5)
        assert receiver.counters.duplicates == 0
    assert_once(service, 5)


def test_a_full_filter_replaces_the_rows_of_its_ids(service: Service) -> None:
    connect = with_psycopg(service)
    service.send(*events(0, 230), partition=0)
    with service.receiver(strategy(service, capacity=50), batch_size=10) as receiver:
        receive(receiver, 230)
    with closing(connect()) as connection:
        [(filters, size)] = connection.execute(SIZES, [service.group]).fetchall()
    assert (filters, size <= 50 * HASH_BYTES) == (1, True)
    service.send(*events(190, 231), partition=0)
    with service.receiver(strategy(service, capacity=50), batch_size=10) as receiver:
        receive(receiver, 41)
        assert receiver.counters.duplicates == 40
    assert_once(service, 231)


def test_a_consumer_that_lost_a_partition_recognizes_the_events_of_the_next_owner(service: Service) -> None:
    with_psycopg(service)

    def consumer(name: str) -> Receiver[Any]:
        """Start a consumer in a separate group, so that both consumers have the partition."""
        return service.receiver(strategy(service), settings={"group.id": f"{service.group}-{name}"}, batch_size=1)

    with consumer("owner") as owner, consumer("other") as other:
        for each in (owner, other):
            run_until(each, "the assignment", lambda each=each: len(each.consumer.assignment()) == 3)  # type: ignore[misc]
        service.send(("a", "0"), partition=0)
        receive(owner, 1)
        receive(other, 1)
        service.send(("a", "1"), partition=0)
        receive(owner, 2)
        service.send(("a", "1"), partition=0)
        receive(other, 3)
        assert (owner.counters.handled, other.counters.duplicates) == (2, 3)
    assert service.effects() == ["0", "1"]


def test_a_dead_letter_can_be_replayed(service: Service) -> None:
    failures = [ValueError("broken")]

    @service.handlers.otherwise
    def fail_once(event: Event, connection: psycopg.Connection) -> None:
        if event.event_id == "3" and failures:
            raise failures.pop()
        service.write_effect(event, connection)

    options: dict[str, Any] = {"retries": Retries(attempts=1), "recoverer": recoverers.log_and_continue}
    service.send(*events(0, 5), partition=0)
    with service.receiver(strategy(service), batch_size=1, **options) as receiver:
        receive(receiver, 5)
        service.send(("a", "3"), ("a", "2"), partition=0)
        receive(receiver, 7)
        assert (receiver.counters.recovered, receiver.counters.duplicates) == (1, 1)
    assert service.effects() == ["0", "1", "2", "4", "3"]


def test_false_positives_are_lost_and_the_measured_rate_tells_how_many(service: Service) -> None:
    with_psycopg(service)
    service.send(*events(0, 600), partition=0)
    bloom = strategy(service, capacity=200, error_rate=0.2)
    with service.receiver(bloom, batch_size=50) as receiver:
        receive(receiver, 600)
        lost = 600 - len(service.effects())
        assert receiver.counters.duplicates == lost
        [rate] = [rate for source, rate in bloom.error_rates().items() if source[1] == 0]
    assert 0.05 < rate < 0.21
    assert 0 < lost < 0.2 * 600
