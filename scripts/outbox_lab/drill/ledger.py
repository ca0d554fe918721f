"""Write and read the ledger, in which writers log the events of a transaction before its commit, and then its outcome.

The ledger is a file outside the system under test with one JSON object per line. A writer continues only after its line
is on disk, so that the file also contains the transaction that the writer was about to commit when it was killed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any, Self


class Outcome(StrEnum):
    """Outcome of a transaction. `UNKNOWN` means that the writer or its connection ended before the result arrived."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    UNKNOWN = "unknown"
    UNDONE = "undone"
    """The commit was acknowledged, but the database does not contain the rows of the transaction."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a transaction. The versions of one account are consecutive and increase in commit order."""

    event_id: str
    account: str
    version: int
    is_tombstone: bool = False


@dataclass(slots=True)
class Transaction:
    """A writer's transaction. Times are in seconds since the epoch."""

    transaction_id: str
    xid: str
    events: list[Event]
    intended_at: float
    outcome: Outcome = Outcome.UNKNOWN
    ended_at: float | None = None


class LedgerFile:
    """Ledger file to which the threads of one process append lines during a `with` block."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = Lock()

    def intend(self, transaction_id: str, xid: str, events: list[Event]) -> None:
        """Log the events of a transaction. Call this method before the commit."""
        entry = {"id": transaction_id, "xid": xid, "at": time.time(), "events": [asdict(event) for event in events]}
        self._append(entry)

    def end(self, transaction_id: str, outcome: Outcome) -> None:
        """Log the outcome of a transaction. Call this method after the commit or rollback."""
        self._append({"id": transaction_id, "outcome": outcome, "at": time.time()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def _append(self, entry: dict[str, Any]) -> None:
        with self._lock:
            # A killed writer may have left an incomplete line.
            self._file.write("\n" + json.dumps(entry))
            self._file.flush()
            os.fsync(self._file.fileno())


@dataclass
class Ledger:
    """The transactions of all writers of a cell, in the order in which the transactions were logged."""

    transactions: dict[str, Transaction] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, *, start: int = 0) -> Ledger:
        """Read a ledger file from byte `start`. Transactions that were logged earlier are not included.

        Incomplete lines are ignored, because a writer does not commit before its line is complete.
        """
        ledger = cls()
        for entry in _entries(path, start):
            if "events" in entry:
                events = [Event(**event) for event in entry["events"]]
                ledger.transactions[entry["id"]] = Transaction(entry["id"], entry["xid"], events, entry["at"])
            elif transaction := ledger.transactions.get(entry["id"]):
                transaction.outcome, transaction.ended_at = Outcome(entry["outcome"]), entry["at"]
        return ledger

    def unknown(self) -> list[Transaction]:
        """Return the transactions with an unknown outcome."""
        return [entry for entry in self.transactions.values() if entry.outcome is Outcome.UNKNOWN]

    def resolve_by_rows(self, event_ids: Collection[str]) -> None:
        """Correct the outcomes by the database. `event_ids` contains the events that have a row.

        A transaction with rows is committed, even if its writer reported a rollback. A transaction without rows is
        undone if its commit was acknowledged.
        """
        for transaction in self.transactions.values():
            if any(event.event_id in event_ids for event in transaction.events):
                transaction.outcome = Outcome.COMMITTED
            elif transaction.outcome is Outcome.COMMITTED:
                transaction.outcome = Outcome.UNDONE

    def newest(self) -> dict[str, Event]:
        """Return a mapping from each account to its committed event with the highest version."""
        newest: dict[str, Event] = {}
        for event, _ in self.events(Outcome.COMMITTED).values():
            if event.account not in newest or newest[event.account].version < event.version:
                newest[event.account] = event
        return newest

    def remove(self, event_ids: Collection[str]) -> None:
        """Remove events that a recovery did not send on purpose, so that they count as neither lost nor delivered."""
        for transaction in self.transactions.values():
            transaction.events = [event for event in transaction.events if event.event_id not in event_ids]

    def events(self, outcome: Outcome) -> dict[str, tuple[Event, Transaction]]:
        """Return a mapping from event id to event and transaction, for all transactions with this outcome."""
        return {
            event.event_id: (event, transaction)
            for transaction in self.transactions.values()
            if transaction.outcome is outcome
            for event in transaction.events
        }


def _entries(path: Path, start: int) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            try:
                entry = json.loads(line.strip() or "null")
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry
