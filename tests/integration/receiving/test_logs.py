"""Log records of failures identify the event, but contain no part of its payload."""

from __future__ import annotations

import logging
from collections.abc import Callable

import psycopg
import pytest
from confluent_kafka import Producer
from tests.integration.receiving.service import SECONDS, Service, run_until

from outbox_events import Event, ProcessedEvents, Retries, json_value, recoverers
from outbox_events.kafka.record import PRODUCER_SETTINGS

PAYLOAD = "secret-4711"
Handle = Callable[[Event, psycopg.Connection], None]


def violate_a_constraint(event: Event, connection: psycopg.Connection) -> None:
    """Insert the payload twice, which causes an error whose details contain the payload."""
    connection.execute("create temporary table name (value text primary key) on commit drop")
    for _ in range(2):
        connection.execute("insert into name values (%s)", [event.raw_value.decode() if event.raw_value else ""])


def decode(event: Event, connection: psycopg.Connection) -> None:
    """Decode the payload, which is not JSON."""
    del connection
    json_value(event)


@pytest.mark.parametrize(("handle", "attempts"), [(violate_a_constraint, [1, 2]), (decode, [1])])
@pytest.mark.parametrize("batch_size", [1, 100])
def test_records_of_failures_name_the_event_and_contain_no_payload(
    service: Service, caplog: pytest.LogCaptureFixture, handle: Handle, attempts: list[int], batch_size: int
) -> None:
    service.handlers.otherwise(handle)
    producer = Producer({"bootstrap.servers": service.bootstrap, **PRODUCER_SETTINGS})
    headers: list[tuple[str, str | bytes | None]] = [("event_id", b"e-1"), ("event_type", b"Changed")]
    producer.produce(service.topic, key="a-1", value=PAYLOAD, headers=headers)
    assert producer.flush(SECONDS) == 0
    retries = Retries(attempts=2, first_delay_s=0.05, jitter=0)
    once = ProcessedEvents(service.connect, service.group)
    options = {"retries": retries, "recoverer": recoverers.log_and_continue, "batch_size": batch_size}
    with service.receiver(once, **options) as receiver:
        run_until(receiver, "the skipped event", lambda: receiver.counters.recovered == 1)
    records = [record for record in caplog.records if record.name == "outbox_events.receiving"]
    shown = [(record.levelno, *(vars(record).get(name) for name in ("event_id", "event_type"))) for record in records]
    failed = [(logging.WARNING, "e-1", "Changed")] * len(attempts)
    assert shown == [*failed, (logging.ERROR, "e-1", "Changed")]
    assert [vars(record).get("attempts") for record in records[:-1]] == attempts
    assert PAYLOAD not in "".join(f"{logging.Formatter().format(record)}{vars(record)}" for record in records)
