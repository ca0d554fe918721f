"""Ledgers, deliveries and results for the tests of the drill."""

from __future__ import annotations

from outbox_lab.drill.cell import CellResult
from outbox_lab.drill.ledger import Event, Ledger, Outcome, Transaction
from outbox_lab.drill.observer import Delivery
from outbox_lab.drill.verdict import judge


def ledger_of(*entries: tuple[str, int, Outcome]) -> Ledger:
    """Return a ledger of transactions with one event each, given as event id, version of account `a`, and outcome.

    Transaction n commits at time n.
    """
    transactions = {
        event_id: Transaction(event_id, str(number), [Event(event_id, "a", version)], number, outcome, number)
        for number, (event_id, version, outcome) in enumerate(entries)
    }
    return Ledger(transactions)


def deliveries_of(*event_ids: str, early: tuple[str, ...] = ()) -> list[Delivery]:
    """Return deliveries of one partition and key, 10 s after time 0. Event `a` has version 1, and event `b` has 2."""
    return [
        Delivery(event_id, 0, offset, 10.0, event_id in early, ord(event_id[0]) - ord("a") + 1, key="a")
        for offset, event_id in enumerate(event_ids)
    ]


def result_of(way: str, fault: str, ledger: Ledger, deliveries: list[Delivery], **changes: object) -> CellResult:
    values: dict[str, object] = {
        "way": way,
        "fault": fault,
        "seed": 1,
        "repetition": 1,
        "injections": 0 if fault == "none" else 1,
        "load": {},
        "started_at": 0.0,
        "seconds": 30.0,
        "verdict": judge(ledger, deliveries),
        "recovery_s": [],
        "fault_spans": [] if fault == "none" else [(1.0, 2.0)],
        "delays": [(0.0, 0.05), (1.0, 0.06), (2.0, 12.0)],
        "tables_equal": None,
        "note": "",
        **changes,
    }
    return CellResult(**values)  # type: ignore[arg-type]
