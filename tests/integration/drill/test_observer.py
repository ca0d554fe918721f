"""The observer on a real topic and database: planted losses, phantoms, early records and duplicates are found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer

from outbox_kit.drill import accounts
from outbox_kit.drill.ledger import Event, Ledger, Outcome, Transaction
from outbox_kit.drill.observer import Delivery, Observer
from outbox_kit.drill.second_reader import complete
from outbox_kit.drill.verdict import judge
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.pipeline import Kafka
from outbox_kit.stack import StackState
from outbox_kit.waiting import Observation, wait_for

DELIVERY_S = 30


@pytest.fixture
def kafka(state: StackState) -> Kafka:
    return Kafka(bootstrap_servers=state.kafka, replication_factor=1, min_insync_replicas=1)


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[str]:
    name = f"drill-{uuid4().hex[:12]}"
    client = KafkaClient(kafka)
    client.create(name, partitions=2, replication_factor=1, config={})
    yield name
    client.delete(name)


def write_accounts(dsn: str, *, roll_back: bool = False) -> list[Event]:
    """Change two accounts in one transaction; return its events."""
    events: list[Event] = []
    with suppress(psycopg.Rollback), psycopg.connect(dsn) as connection, connection.transaction():
        changes = accounts.change_accounts(connection, ["account-1", "account-2"], Random(1))  # noqa: S311
        events = [change.noted for change in changes]
        if roll_back:
            raise psycopg.Rollback
    return events


def ledger_of(*entries: tuple[list[Event], Outcome]) -> Ledger:
    transactions = [Transaction(str(uuid4()), "1", events, 0.0, outcome, 0.0) for events, outcome in entries]
    return Ledger({transaction.transaction_id: transaction for transaction in transactions})


def value_of(event: Event) -> bytes | None:
    return None if event.is_tombstone else json.dumps({"version": event.version}).encode()


def produce(kafka: Kafka, topic: str, *events: Event) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for event in events:
        headers = [("event_id", event.event_id.encode())]
        producer.produce(topic, key=event.account, value=value_of(event), headers=headers)
    assert producer.flush(DELIVERY_S) == 0


def wait_for_deliveries(observer: Observer, count: int) -> list[Delivery]:
    def poll() -> Observation[list[Delivery]]:
        deliveries = observer.deliveries
        return Observation(deliveries if len(deliveries) >= count else None, f"{len(deliveries)} deliveries")

    return wait_for(f"{count} deliveries", poll, seconds=DELIVERY_S)


def test_finds_what_was_planted(kafka: Kafka, topic: str, source_dsn: str) -> None:
    with psycopg.connect(source_dsn) as connection:
        accounts.prepare(connection, 2)
    lost, duplicated = write_accounts(source_dsn)
    delivered = write_accounts(source_dsn)
    phantoms = write_accounts(source_dsn, roll_back=True)
    early = Event(str(uuid4()), "account-1", 99)  # committed by the ledger, and its row is not visible yet
    ledger = ledger_of(
        ([lost, duplicated], Outcome.COMMITTED),
        (delivered, Outcome.COMMITTED),
        (phantoms, Outcome.ROLLED_BACK),
        ([early], Outcome.COMMITTED),
    )
    produce(kafka, topic, duplicated, *delivered, *phantoms, early, duplicated)
    with Observer(kafka, topic, source_dsn) as observer:
        verdict = judge(ledger, wait_for_deliveries(observer, 7))
    assert verdict.lost_events == (lost.event_id,)
    assert set(verdict.phantom_events) == {event.event_id for event in phantoms}
    assert (verdict.early, verdict.duplicated, verdict.unordered, verdict.wrong) == (1, 1, 0, 0)


def test_records_that_the_observer_missed_are_no_loss(kafka: Kafka, topic: str, source_dsn: str) -> None:
    with psycopg.connect(source_dsn) as connection:
        accounts.prepare(connection, 2)
    observed, missed = write_accounts(source_dsn), write_accounts(source_dsn)
    newest, lost = write_accounts(source_dsn)
    [phantom, _] = write_accounts(source_dsn, roll_back=True)
    produce(kafka, topic, *observed)
    with Observer(kafka, topic, source_dsn) as observer:
        wait_for_deliveries(observer, 2)
    produce(kafka, topic, newest, *missed, observed[0], phantom)
    deliveries, note = complete(observer, kafka, topic)
    verdict = judge(ledger_of((observed + missed + [newest, lost], Outcome.COMMITTED)), deliveries)
    assert (verdict.lost_events, verdict.phantom_events) == ((lost.event_id,), (phantom.event_id,))
    assert (verdict.delivered, verdict.duplicated, verdict.unordered, verdict.wrong) == (6, 1, 1, 0)
    assert verdict.delays.maximum is not None
    assert "missed 5 records" in note


def test_a_second_reader_counts_no_record_twice(kafka: Kafka, topic: str, source_dsn: str) -> None:
    with psycopg.connect(source_dsn) as connection:
        accounts.prepare(connection, 2)
    first, second = write_accounts(source_dsn)
    produce(kafka, topic, first, second, first)
    with Observer(kafka, topic, source_dsn) as observer:
        wait_for_deliveries(observer, 3)
        assert complete(observer, kafka, topic) == (observer.deliveries, "")


def test_an_xid_stays_with_its_transaction_after_a_rollback(source_dsn: str) -> None:
    with psycopg.connect(source_dsn) as connection:
        with suppress(psycopg.Rollback), connection.transaction():
            xid = accounts.durable_xid(connection)
            raise psycopg.Rollback
        assert connection.execute(accounts.STATUS, (xid,)).fetchall() == [("aborted",)]
