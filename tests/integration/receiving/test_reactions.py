"""Errors of PostgreSQL and Kafka: the receiver waits for errors that no event causes to end; others use up attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, sessionmaker
from tests.integration.receiving.service import Service, run_until

from outbox_events import Event, ProcessedEvents, Retries, recoverers

FAST = Retries(attempts=2, first_delay_s=0.05, jitter=0)
READ_ONLY = "-c default_transaction_read_only=on"
STATEMENTS = {
    "54000": "select repeat('x', 1073741824)",
    "57014": "set local statement_timeout = '1ms'; select pg_sleep(60)",
    "55P03": "set local lock_timeout = '1ms'; lock table blocked",
}


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


@pytest.mark.parametrize("sqlstate", STATEMENTS)
def test_an_error_of_a_statement_uses_up_the_attempts(service: Service, sqlstate: str) -> None:
    def fail(event: Event, connection: psycopg.Connection) -> None:
        if event.event_id == "bad":
            for statement in STATEMENTS[sqlstate].split(";"):
                connection.execute(statement)
        service.write_effect(event, connection)

    states: list[str | None] = []

    def recover(failure: recoverers.Failure, _: object, /) -> None:
        states.append(failure.error.sqlstate if isinstance(failure.error, psycopg.Error) else None)

    service.handlers.otherwise(fail)
    service.send(("a", "bad"), ("a", "good"), partition=0)
    with psycopg.connect(service.dsn) as blocker:
        blocker.execute("create table if not exists blocked ()")
        blocker.commit()
        blocker.execute("lock table blocked")
        with service.receiver(ProcessedEvents(service.connect), retries=FAST, recoverer=recover) as receiver:
            run_until(receiver, "the other event", lambda: service.effects() == ["good"])
    assert states == [sqlstate]


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
        insert = "insert into processed_event (consumer_group, event_id) values (%s, '1')"
        other.execute(insert, [service.group])
        options = {"retries": FAST, "recoverer": recoverers.log_and_continue}
        with service.receiver(ProcessedEvents(service.connect), **options) as receiver:
            run_until(receiver, "more attempts than allowed", lambda: receiver.counters.retries > 4)
            other.rollback()
            run_until(receiver, "the effect", lambda: service.effects() == ["1"])
            assert receiver.counters.recovered == 0
