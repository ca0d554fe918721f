"""The observer, on a real topic and database, finds planted losses, phantoms, early records and duplicates."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

import psycopg
from tests.integration.drill.service import DELIVERY_S, ledger_of, produce, write_accounts

from outbox_events.waiting import Observation, wait_for
from outbox_kit.pipeline import Kafka
from outbox_lab.drill import accounts
from outbox_lab.drill.ledger import Event, Outcome
from outbox_lab.drill.observer import Delivery, Observer, complete
from outbox_lab.drill.verdict import judge


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
    early = Event(str(uuid4()), "account-1", 99)  # committed according to the ledger, but its row is not visible yet
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
