"""A service that changes accounts and produces their events, and its ledger."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from uuid import uuid4

import psycopg
from confluent_kafka import Producer

from outbox_kit.pipeline import Kafka
from outbox_lab.drill import accounts
from outbox_lab.drill.ledger import Event, Ledger, Outcome, Transaction

DELIVERY_S = 30


def write_accounts(dsn: str, *, count: int = 2, roll_back: bool = False) -> list[Event]:
    """Change accounts in one transaction; return its events."""
    events: list[Event] = []
    with suppress(psycopg.Rollback), psycopg.connect(dsn) as connection, connection.transaction():
        names = [f"account-{number}" for number in range(1, count + 1)]
        changes = accounts.change_accounts(connection, names, Random(1))  # noqa: S311
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
