"""Errors of PostgreSQL and Kafka: the receiver waits for errors that no event causes to end; others use up attempts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, sessionmaker
from tests.integration.receiving.service import Service, run_until
from tests.integration.untrue_errors import EmptyError, EmptyRollback, InvalidError

from outbox_events import Event, ProcessedEvents, Retries, StoredOffsets, WithoutDeduplication, recoverers

FAST = Retries(attempts=2, first_delay_s=0.05, jitter=0)
READ_ONLY = "-c default_transaction_read_only=on"


@pytest.mark.parametrize("uses_session", [False, True])
def test_a_connection_to_a_standby_is_replaced(service: Service, uses_session: bool) -> None:
    """After a failover, connections to the old primary can remain open, but no longer accept changes."""
    attempts: list[str] = []

    def connect() -> psycopg.Connection:
        attempts.append(READ_ONLY if len(attempts) < 4 else "")
        return psycopg.connect(service.dsn, options=attempts[-1])

    def write(event: Event, context: Any) -> None:  # noqa: ANN401 - a connection or a session
        session = context.connection().connection.driver_connection if isinstance(context, Session) else context
        service.write_effect(event, session)

    service.handlers.otherwise(write)
    service.send(("a", "1"), ("a", "2"))
    engine = create_engine("postgresql+psycopg://", creator=connect)
    try:
        strategy = ProcessedEvents[Any](sessionmaker(engine) if uses_session else connect)
        with service.receiver(strategy, retries=FAST, recoverer=recoverers.log_and_continue) as receiver:
            run_until(receiver, "the effects", lambda: service.effects() == ["1", "2"])
            assert receiver.counters.recovered == 0
    finally:
        engine.dispose()


@pytest.mark.parametrize("error", [EmptyError, InvalidError, psycopg.Rollback, EmptyRollback])
@pytest.mark.parametrize("kind", [ProcessedEvents, StoredOffsets, WithoutDeduplication])
def test_an_error_that_psycopg_would_not_raise_rolls_back(
    service: Service, kind: type[Any], error: type[Exception]
) -> None:
    recovered: list[str] = []

    def fail(event: Event, connection: psycopg.Connection) -> None:
        service.write_effect(event, connection)
        with suppress(error), connection.transaction():
            service.write_effect(event, connection)
            raise error
        if event.event_id == "bad":
            raise error

    service.handlers.otherwise(fail)
    service.send(("a", "1"), ("a", "bad"), ("a", "2"), partition=0)
    options = {"retries": FAST, "recoverer": lambda failure, _: recovered.append(failure.event.event_id)}
    with service.receiver(kind(service.connect), **options) as receiver:
        run_until(receiver, "the other events", lambda: sorted(service.effects()) == ["1", "2"])
    assert recovered == ["bad"]


class OutOfStock(psycopg.Rollback):
    """A subclass whose constructor does not call that of psycopg."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def test_a_subclass_of_rollback_undoes_the_savepoint_and_keeps_its_attributes(service: Service) -> None:
    reasons: list[str] = []

    def handle(event: Event, connection: psycopg.Connection) -> None:
        try:
            with connection.transaction():
                service.write_effect(event, connection)
                raise OutOfStock("no stock")
        except OutOfStock as error:
            reasons.append(error.reason)
        service.write_effect(event, connection)

    service.handlers.otherwise(handle)
    service.send(("a", "1"))
    with service.receiver(ProcessedEvents(service.connect), retries=FAST) as receiver:
        run_until(receiver, "the effect", lambda: service.effects() == ["1"])
    assert reasons == ["no stock"]


def test_an_error_of_a_statement_uses_up_the_attempts(service: Service) -> None:
    def fail(event: Event, connection: psycopg.Connection) -> None:
        if event.event_id == "bad":
            connection.execute("select repeat('x', 1073741824)")
        service.write_effect(event, connection)

    states: list[str | None] = []

    def recover(failure: recoverers.Failure, _: object, /) -> None:
        states.append(failure.error.sqlstate if isinstance(failure.error, psycopg.Error) else None)

    service.handlers.otherwise(fail)
    service.send(("a", "bad"), ("a", "good"), partition=0)
    with service.receiver(ProcessedEvents(service.connect), retries=FAST, recoverer=recover) as receiver:
        run_until(receiver, "the other event", lambda: service.effects() == ["good"])
    assert states == ["54000"]


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
def test_a_lock_delays_an_event_but_neither_loses_it_nor_delays_others(service: Service, limit: str) -> None:
    table = f"blocked_{service.group.replace('-', '_')}"

    @service.handlers.otherwise
    def write(event: Event, connection: psycopg.Connection) -> None:
        if event.event_id == "bug":
            raise ValueError(event.event_id)
        if event.event_id == "locked":
            connection.execute(f"set local {limit} = '10ms'; lock table {table}")  # type: ignore[arg-type]
        service.write_effect(event, connection)

    failed: list[str] = []
    retries = Retries(attempts=2, first_delay_s=0.02, factor=1)
    options = {"retries": retries, "recoverer": lambda failure, _: failed.append(failure.event.event_id)}
    service.send(("a", "locked"), ("a", "next"), partition=0)
    service.send(("b", "bug"), ("b", "other"), partition=1)
    with service.connect() as blocker:
        blocker.execute(f"create table {table} ()")  # type: ignore[arg-type]
        blocker.commit()
        blocker.execute(f"lock table {table}")  # type: ignore[arg-type]
        with service.receiver(ProcessedEvents(service.connect), **options) as receiver:
            run_until(receiver, "more attempts than allowed", lambda: receiver.counters.retries > 6)
            assert (service.effects(), failed) == (["other"], ["bug"])
            blocker.rollback()
            run_until(receiver, "the events", lambda: len(service.effects()) == 3)
    assert (service.effects(), failed) == (["other", "locked", "next"], ["bug"])


def test_a_session_without_the_prepared_statements_is_replaced(service: Service) -> None:
    """Behind a pooler, a transaction can run in another session of the server."""
    sessions: list[int] = []

    @service.handlers.otherwise
    def write(event: Event, connection: psycopg.Connection) -> None:
        service.write_effect(event, connection)
        sessions.append(connection.info.backend_pid)
        if len(sessions) == 1:  # a block, because psycopg forgets its statements after DEALLOCATE
            connection.execute("do $$ begin execute 'deallocate all'; end $$")

    def connect() -> psycopg.Connection:
        return psycopg.connect(service.dsn, prepare_threshold=0)

    service.send(("a", "1"), ("a", "2"), ("a", "3"), partition=0)
    options = {"retries": FAST, "recoverer": recoverers.log_and_continue, "batch_size": 1}
    with service.receiver(ProcessedEvents(connect), **options) as receiver:
        run_until(receiver, "the effects", lambda: service.effects() == ["1", "2", "3"])
        assert receiver.counters.recovered == 0
    assert len(set(sessions)) == 2


def test_a_record_that_a_handlers_own_producer_rejects_uses_up_the_attempts(
    service: Service, create_topic: Callable[..., str]
) -> None:
    output = create_topic()
    producer = Producer({"bootstrap.servers": service.bootstrap})

    @service.handlers.otherwise
    def forward(event: Event, connection: psycopg.Connection) -> None:
        producer.produce(output, bytes(2_000_000 if event.event_id == "big" else 1))
        service.write_effect(event, connection)

    service.send(("a", "big"), ("a", "small"), partition=0)
    options = {"retries": FAST, "recoverer": recoverers.log_and_continue}
    with service.receiver(ProcessedEvents(service.connect), **options) as receiver:
        run_until(receiver, "the other event", lambda: service.effects() == ["small"])
        assert receiver.counters.recovered == 1
    producer.flush(60)


def test_waits_for_another_transaction_with_the_event(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox_events.receiving.strategies.processed_table.WAIT", "20ms")
    service.handlers.otherwise(service.write_effect)
    service.send(("a", "1"), partition=0)
    with service.connect() as other:
        insert = "insert into processed_event (consumer_group, event_id) values (%s, %s)"
        other.execute(insert, [service.group, f"{service.topic}:1"])
        options = {"retries": FAST, "recoverer": recoverers.log_and_continue}
        with service.receiver(ProcessedEvents(service.connect), **options) as receiver:
            run_until(receiver, "more attempts than allowed", lambda: receiver.counters.retries > 4)
            other.rollback()
            run_until(receiver, "the effect", lambda: service.effects() == ["1"])
            assert receiver.counters.recovered == 0
