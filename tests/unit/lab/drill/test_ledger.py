"""The ledger file: the entries that it retains of killed writers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.lab.drill.samples import ledger_of

from outbox_lab.drill.ledger import Event, Ledger, LedgerFile, Outcome

EVENTS = [Event("e1", "account-1", 3), Event("e2", "account-2", 1, is_tombstone=True)]


def test_reads_what_was_noted(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with LedgerFile(path) as file:
        file.intend("t1", "700", EVENTS)
        file.end("t1", Outcome.COMMITTED)
    transaction = Ledger.read(path).transactions["t1"]
    assert (transaction.xid, transaction.events, transaction.outcome) == ("700", EVENTS, Outcome.COMMITTED)


def test_a_transaction_without_an_outcome_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with LedgerFile(path) as file:
        file.intend("t1", "700", EVENTS)
    assert [entry.transaction_id for entry in Ledger.read(path).unknown()] == ["t1"]


def test_a_half_written_line_affects_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with LedgerFile(path) as file:
        file.intend("t1", "700", EVENTS)
    with path.open("a") as file:
        file.write('\n{"id": "t2", "xid": "70')  # the writer was killed here and started again
    with LedgerFile(path) as file:
        file.intend("t3", "701", EVENTS)
    assert list(Ledger.read(path).transactions) == ["t1", "t3"]


def test_reads_the_transactions_that_were_noted_later(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with LedgerFile(path) as file:
        file.intend("t1", "700", EVENTS)
        start = path.stat().st_size
        file.end("t1", Outcome.COMMITTED)
        file.intend("t2", "701", EVENTS)
    assert list(Ledger.read(path, start=start).transactions) == ["t2"]


@pytest.mark.parametrize(
    ("noted", "without_rows"),
    [
        (Outcome.COMMITTED, Outcome.UNDONE),
        (Outcome.UNKNOWN, Outcome.UNKNOWN),
        (Outcome.ROLLED_BACK, Outcome.ROLLED_BACK),
    ],
)
def test_rows_decide_what_is_committed(noted: Outcome, without_rows: Outcome) -> None:
    ledger = ledger_of(("gone", 1, noted), ("here", 2, noted))
    ledger.resolve_by_rows({"here"})
    outcomes = {key: entry.outcome for key, entry in ledger.transactions.items()}
    assert outcomes == {"gone": without_rows, "here": Outcome.COMMITTED}


def test_removed_events_are_no_events_of_their_transaction(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with LedgerFile(path) as file:
        file.intend("t1", "700", EVENTS)
        file.end("t1", Outcome.COMMITTED)
    ledger = Ledger.read(path)
    ledger.remove({"e1", "unknown"})
    assert list(ledger.events(Outcome.COMMITTED)) == ["e2"]
