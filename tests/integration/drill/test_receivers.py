"""Receivers of a cell on a real topic and database: killed members, and detection of a sabotaged receiver."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event as Flag

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.drill.service import ledger_of, produce, write_accounts
from tests.integration.support import temporary_database

from outbox_events.receiving.exit_limit import EXIT_CODE
from outbox_events.waiting import Observation, wait_for
from outbox_kit.kafka.client import client_settings
from outbox_kit.pipeline import Kafka
from outbox_lab.drill import accounts
from outbox_lab.drill.components import ProcessComponent
from outbox_lab.drill.ledger import Event, Outcome
from outbox_lab.drill.observer import read_deliveries
from outbox_lab.drill.receivers import receivers as receivers_module
from outbox_lab.drill.receivers import tables
from outbox_lab.drill.receivers.effects import count_effects
from outbox_lab.drill.receivers.receivers import MEMBERS, PAUSE_S, Place, Receivers
from outbox_lab.drill.receivers.strategies import STRATEGIES
from outbox_lab.drill.verdict import judge

ACCOUNTS = 8
KILL_S = 60


@pytest.fixture
def place(kafka: Kafka, topic: str, source_dsn: str, tmp_path: Path) -> Iterator[Place]:
    """Yield a place with its own database and new accounts."""
    with psycopg.connect(source_dsn) as connection:
        accounts.prepare(connection, ACCOUNTS)
    with temporary_database(source_dsn, "drill") as dsn:
        yield Place(kafka, dsn, topic, tmp_path, "cell")


@pytest.mark.long
def test_effects_equal_the_ledger_after_each_member_was_killed(place: Place, source_dsn: str) -> None:
    committed: list[Event] = []
    with Receivers(place, "1") as receivers:

        def kill(number: int) -> Observation[bool]:
            """Produce until the member has applied events and has been killed."""
            events, before = write_accounts(source_dsn, count=ACCOUNTS), receivers.kills
            produce(place.kafka, place.topic, *events)
            committed.extend(events)
            receivers.kill(number)
            return Observation(receivers.kills > before or None, "the member is not ready")

        def kill_early() -> Observation[bool]:
            receivers.kill_early(0)
            return Observation(receivers.early_kills > 0 or None, "the member has not joined its groups")

        for number in range(MEMBERS):
            wait_for(f"the kill of member {number}", lambda number=number: kill(number), seconds=KILL_S)  # type: ignore[misc]
        wait_for("an early kill", kill_early, seconds=KILL_S, interval=0.05)
        receivers.pause(1, PAUSE_S[0], Flag())
        produce(place.kafka, place.topic, committed[0])
        deliveries = read_deliveries(place.kafka, place.topic)
        assert receivers.drain(deliveries) == []
    ledger = ledger_of((committed, Outcome.COMMITTED))
    verdict = judge(ledger, deliveries)
    found = receivers.count_effects(ledger, deliveries)
    assert (len(found), verdict.duplicated, receivers.kills) == (len(STRATEGIES), 1, MEMBERS)
    assert verdict.stale == 1  # the duplicate is the oldest state of its account
    assert {counts.strategy: counts.broken for counts in found if counts.broken} == {}
    assert [text.partition(":")[0] for text in receivers.stop(ledger)] == [committed[0].account] * MEMBERS
    repeated = {counts.strategy: counts.repeated for counts in found}
    assert repeated.pop("without-deduplication") >= 1
    assert repeated == {"processed-events": 0, "bloom-filter": 0, "stored-offsets": 1, "kafka-transactions": 1}


def test_a_receiver_that_skips_or_repeats_an_event_is_found(place: Place, source_dsn: str) -> None:
    events = write_accounts(source_dsn, count=ACCOUNTS)
    phantoms = write_accounts(source_dsn, roll_back=True)
    produce(place.kafka, place.topic, *events, *phantoms)
    skipped = read_deliveries(place.kafka, place.topic)[0]
    duplicate = next(event for event in events if event.event_id != skipped.event_id)
    produce(place.kafka, place.topic, duplicate)
    deliveries = read_deliveries(place.kafka, place.topic)
    # Simulates a consumer that commits an offset before the effects, and crashes in between.
    consumer = Consumer({**client_settings(place.kafka), "group.id": f"{place.topic}.processed-events"})
    offset = TopicPartition(place.topic, skipped.partition, skipped.offset + 1)
    consumer.commit(offsets=[offset], asynchronous=False)
    consumer.close()
    with Receivers(place, "1", ["processed-events", "without-deduplication"]) as receivers:
        assert receivers.drain(deliveries) == []
    ledger = ledger_of((events, Outcome.COMMITTED), (phantoms, Outcome.ROLLED_BACK))
    [skipping, repeating] = receivers.count_effects(ledger, deliveries)
    assert (skipping.missing_events, skipping.phantom) == ((skipped.event_id,), len(phantoms))
    assert skipping.broken["missing"] == 1
    assert repeating.repeated_events == (duplicate.event_id,)
    effects = tables.read_effects(place.dsn, f"{place.topic}.without-deduplication")
    assert count_effects("processed-events", ledger, effects, deliveries).broken["repeated"] == 1


def test_a_member_that_ended_with_an_error_still_writes_its_states(
    place: Place, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = f"import os; os._exit({EXIT_CODE})"  # as after a call of a client that does not return
    with monkeypatch.context() as patched:
        patched.setattr(
            receivers_module,
            "start_module",
            lambda _module, _settings, folder, log, ready: ProcessComponent(
                [sys.executable, "-c", failing], folder, log, ready=ready
            ),
        )
        receivers = Receivers(place, "1", ["processed-events"]).__enter__()
    events = write_accounts(source_dsn, count=ACCOUNTS)
    produce(place.kafka, place.topic, *events)
    assert receivers.stop(ledger_of((events, Outcome.COMMITTED))) == []


def test_a_wait_for_the_end_of_the_topic_tells_what_is_missing(
    place: Place, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers_module, "END_S", 0)
    produce(place.kafka, place.topic, *write_accounts(source_dsn, count=ACCOUNTS))
    [delivery, *_] = read_deliveries(place.kafka, place.topic)
    receivers = Receivers(place, "1", ["processed-events"])  # not started
    [note] = receivers.drain([delivery])
    assert f"partition {delivery.partition} at None of {delivery.offset + 1}" in note
