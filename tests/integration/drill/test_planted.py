"""Each planted mistake of a sender or handler, on a real topic and database, is shown by its own count."""

from __future__ import annotations

from pathlib import Path
from threading import Event as Flag
from threading import Thread

import psycopg
import pytest
from tests.integration.drill.service import DELIVERY_S
from tests.integration.support import temporary_database

from outbox_events.waiting import Observation, wait_for
from outbox_kit.pipeline import Kafka
from outbox_lab.drill import accounts
from outbox_lab.drill.ledger import Ledger, LedgerFile
from outbox_lab.drill.observer import read_deliveries
from outbox_lab.drill.receivers.handlers import PLANTED_HANDLERS
from outbox_lab.drill.receivers.receivers import Place, Receivers
from outbox_lab.drill.senders import planted
from outbox_lab.drill.senders.planted import PLANTED_SENDERS
from outbox_lab.drill.senders.sender import SenderSettings
from outbox_lab.drill.verdict import COUNTS, OTHER_COUNTS, judge
from outbox_lab.drill.writer import Writer, WriterSettings

ACCOUNTS = 5
TRANSACTIONS = 60
PARTITIONS = 2
CONSEQUENCES = {
    "lost": {"stale"},
    "undone": {"lost", "phantom", "stale"},
    "phantom": {"early", "stale"},
    "duplicated": set(),
    "unordered": {"lost", "stale"},  # the last records are still held at the end
    "stale": {"duplicated"},
    "wrong_key": {"stale", "unordered"},
    "wrong": set(),
    "misplaced": set(),
}
"""Further counts that the mistakes behind a count can cause."""
ALWAYS_RUN = ("undone", "stale", "wrong_key", "misplaced")
"""Counts that test_observer.py does not test."""


def run_service(kafka: Kafka, topic: str, dsn: str, sender: str, file: Path) -> Ledger:
    """Run transactions with one writer, and return its ledger."""
    with psycopg.connect(dsn) as connection:
        accounts.prepare(connection, ACCOUNTS)
    options = {"bootstrap_servers": kafka.bootstrap_servers, "topic": topic}
    settings = WriterSettings(dsn, str(file), SenderSettings(sender, options), ACCOUNTS, 1, 10_000, "1")
    stop = Flag()

    def poll() -> Observation[bool]:
        count = len(Ledger.read(file).transactions)
        return Observation(count >= TRANSACTIONS or None, f"{count} transactions")

    with LedgerFile(file) as ledger_file:
        writer = Thread(target=Writer(settings, 0, ledger_file, stop).run)
        writer.start()
        try:
            wait_for("the transactions", poll, seconds=DELIVERY_S, interval=0.05)
        finally:
            stop.set()
            writer.join()
    ledger = Ledger.read(file)
    with psycopg.connect(dsn) as connection:
        ledger.resolve_by_rows(accounts.entered_events(connection))
    return ledger


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(name, marks=() if finds in ALWAYS_RUN else pytest.mark.long)
        for name, (_, finds) in PLANTED_SENDERS.items()
    ],
)
def test_the_mistake_of_a_sender_is_found(
    kafka: Kafka, topic: str, source_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    monkeypatch.setattr(planted, "DROPPED_SHARE", 50)
    ledger = run_service(kafka, topic, source_dsn, mistake, tmp_path / "ledger")
    verdict = judge(ledger, read_deliveries(kafka, topic), partitions=PARTITIONS)
    finds = PLANTED_SENDERS[mistake][1]
    shown = {name for name in (*COUNTS, *OTHER_COUNTS) if getattr(verdict, name)}
    assert finds in shown
    assert shown <= {finds} | CONSEQUENCES[finds]


def test_a_sender_without_a_mistake_has_no_findings(kafka: Kafka, topic: str, source_dsn: str, tmp_path: Path) -> None:
    ledger = run_service(kafka, topic, source_dsn, "planted-handlers", tmp_path / "ledger")
    verdict = judge(ledger, read_deliveries(kafka, topic), partitions=PARTITIONS)
    assert {name: getattr(verdict, name) for name in (*COUNTS, *OTHER_COUNTS) if getattr(verdict, name)} == {}


@pytest.mark.long
def test_the_mistake_of_a_handler_is_found(kafka: Kafka, topic: str, source_dsn: str, tmp_path: Path) -> None:
    with temporary_database(source_dsn, "drill") as dsn:
        ledger = run_service(kafka, topic, source_dsn, "planted-handlers", tmp_path / "ledger")
        deliveries = read_deliveries(kafka, topic)
        with Receivers(Place(kafka, dsn, topic, tmp_path, "cell"), "1", tuple(PLANTED_HANDLERS)) as receivers:
            assert receivers.drain(deliveries) == []
        found = {counts.strategy: counts.broken for counts in receivers.count_effects(ledger, deliveries)}
    assert [name for name, entry in PLANTED_HANDLERS.items() if not found[name].get(entry.finds)] == []
