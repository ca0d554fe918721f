"""Runs all cells of the matrix at the same time, because most cells wait for a session timeout or a rebalance."""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.integration.receiving.matrix.case import Servers, opened
from tests.integration.receiving.matrix.entries import ENTRIES, Entry
from tests.integration.receiving.matrix.failures import FAILURES, Failure
from tests.integration.receiving.matrix.outcomes import Cell, Outcome

AT_ONCE = 20
RESULTS = Path(__file__).resolve().parents[4] / "build" / "receiving-matrix.json"


def promise(failure: Failure, entry: Entry) -> Outcome | None:
    """Return the outcome that the strategy promises, or None if the failure cannot occur."""
    return entry.promises.get(failure.name, failure.usual)


CELLS = {
    (failure.name, entry.name): (failure, entry)
    for failure in FAILURES
    for entry in ENTRIES
    if promise(failure, entry) is not None
}


class Runs:
    """Outcomes by failure and strategy."""

    def __init__(self, servers: Servers, pool: ThreadPoolExecutor) -> None:
        self._servers = servers
        self._pool = pool
        self._running: dict[Cell, Future[Outcome]] = {}

    def start(self, cell: Cell) -> Future[Outcome]:
        """Start a cell if it has not been started."""
        if cell not in self._running:
            self._running[cell] = self._pool.submit(self._run, *CELLS[cell])
        return self._running[cell]

    def _run(self, failure: Failure, entry: Entry) -> Outcome:
        with opened(self._servers, entry) as case:
            failure.run(case)
        return case.outcome()

    def all(self) -> dict[Cell, Outcome]:
        """Return all outcomes, and write them to `RESULTS`."""
        futures = {cell: self.start(cell) for cell in CELLS}
        outcomes = {cell: future.result() for cell, future in futures.items()}
        RESULTS.parent.mkdir(exist_ok=True)
        rows = [{"failure": cell[0], "strategy": cell[1], **asdict(outcome)} for cell, outcome in outcomes.items()]
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        return outcomes
