"""One outbox row per aggregate, with its newest state, in batches that can be interrupted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from psycopg import sql

from outbox_kit.backfill.newest_states import States, open_states
from outbox_kit.backfill.progress_table import Ledger, Mark
from outbox_kit.backfill.session import LOCK_SECONDS, Session, despite_deadlocks, open_session
from outbox_kit.deployment import Deployment
from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline import Pipeline
from outbox_kit.progress import Progress
from outbox_kit.waiting import Seen, wait_for

EVENT_TYPE = "backfill"
REPORT_EVERY_S = 1.0
# What the planner believes; -1 before the first ANALYZE. A partitioned table has its own since PostgreSQL 14.
ESTIMATE: LiteralString = "select reltuples::bigint as rows from pg_class where oid = to_regclass(%s)"


@dataclass(frozen=True)
class Options:
    """How to go about it."""

    batch_size: int = 500
    rows_per_second: float | None = None
    restart: bool = False
    delete: bool = False
    lock_seconds: float = LOCK_SECONDS


@dataclass(frozen=True)
class Backfilled:
    """One aggregate type, done: rows over all runs since the (re)start, and of this run alone."""

    aggregate_type: str
    rows: int
    skipped: int
    rows_now: int
    seconds: float


def backfill(
    deployment: Deployment, aggregate_types: Sequence[str], progress: Progress, options: Options | None = None
) -> list[Backfilled]:
    """Write the newest state of every aggregate of these types into the outbox; all types that can be, when none.

    Each batch is one transaction with its own progress in it, so an interrupted run goes on where it stopped
    and no aggregate is written twice. One that was finished is not run again without `restart`.

    Raises ConfigurationError, RefusedError, RejectedError, UnreachableError.
    """
    options = options or Options()
    names = aggregate_types or _able(deployment.pipeline)
    with open_session(deployment, lock_seconds=options.lock_seconds) as session:
        found = [
            open_states(session.connection, deployment.pipeline, name, delete=options.delete)
            for name in dict.fromkeys(names)
        ]
        return [_run(session, states, progress, options) for states in found]


def _able(pipeline: Pipeline) -> list[str]:
    able = [name for name, aggregate in pipeline.aggregates.items() if aggregate.backfill]
    if not able:
        message = f"no aggregate of pipeline {pipeline.name} has a `backfill`"
        raise ConfigurationError(message, "give it table, key and query; see docs/backfill.md")
    return able


def _run(session: Session, states: States, progress: Progress, options: Options) -> Backfilled:
    ledger = Ledger(session.deployment.pipeline, states.aggregate_type)
    with session.connection.transaction():
        ledger.create(session.connection)
        mark = ledger.begin(session.connection, restart=options.restart)
    if mark.finished_at is not None:
        progress(f"{states.aggregate_type}: finished on {mark.finished_at:%Y-%m-%d %H:%M}; --restart to run it again")
        return Backfilled(states.aggregate_type, mark.rows, mark.skipped, 0, 0.0)
    if mark.last_key is not None:
        progress(f"{states.aggregate_type}: goes on after {mark.rows + mark.skipped} aggregates")
    meter = Meter(states.aggregate_type, _estimate(session, states), mark, progress)
    size = options.batch_size
    if options.rows_per_second:
        size = max(1, min(size, round(options.rows_per_second)))
    while (mark := despite_deadlocks()(_batch, session, states, ledger, size)).finished_at is None:
        meter.count(mark)
        if options.rows_per_second:
            meter.pace(options.rows_per_second)
    return meter.done(mark)


def _batch(session: Session, states: States, ledger: Ledger, size: int) -> Mark:
    """One transaction: the next keys, their states, and the mark behind them."""
    connection = session.connection
    with session.transaction(f"rows of {states.backfill.table}"):
        mark = ledger.lock(connection)
        if mark.finished_at is not None:  # by another backfill, at the same time
            return mark
        keys = states.page(connection, mark.last_key, size)
        if not keys:
            ledger.finish(connection)
            return ledger.lock(connection)
        written = len(states.publish(connection, keys, EVENT_TYPE).written)
        ledger.advance(connection, keys[-1], rows=written, skipped=len(keys) - written)
        return ledger.lock(connection)


def _estimate(session: Session, states: States) -> int | None:
    table = sql.Identifier(*states.backfill.table.split(".")).as_string()
    row = session.connection.execute(ESTIMATE, (table,)).fetchone()
    return row["rows"] if row and row["rows"] >= 0 else None


class Meter:
    """Says how far a backfill has come, at most once a second, and keeps it from running too fast."""

    def __init__(self, aggregate_type: str, estimate: int | None, start: Mark, progress: Progress) -> None:
        self._aggregate_type = aggregate_type
        self._estimate = estimate
        self._start = start
        self._mark = start
        self._progress = progress
        self._began = self._said = time.monotonic()

    def count(self, mark: Mark) -> None:
        """A batch is done."""
        self._mark = mark
        if time.monotonic() - self._said >= REPORT_EVERY_S:
            self._said = time.monotonic()
            self._progress(self.words())

    def words(self) -> str:
        """Counts, rate, and about how many are left by the planner's estimate."""
        done = self._mark.rows + self._mark.skipped
        left = "" if self._estimate is None else f", about {max(0, self._estimate - done)} left"
        skipped = f", {self._mark.skipped} skipped" if self._mark.skipped else ""
        rate = self._rows_now / self._seconds if self._seconds else 0
        return f"{self._aggregate_type}: {self._mark.rows} rows{skipped}, {rate:.0f} rows/s{left}"

    def pace(self, rows_per_second: float) -> None:
        """Wait until so many rows were due."""
        due = self._rows_now / rows_per_second - self._seconds
        if due > 0:
            end = time.monotonic() + due
            wait_for(
                f"{rows_per_second:g} rows per second",
                lambda: Seen(True if time.monotonic() >= end else None, "too early"),
                seconds=due + 60,
                every=min(due, 0.25),
            )

    def done(self, mark: Mark) -> Backfilled:
        """The last words."""
        self._mark = mark
        skipped = f", {mark.skipped} skipped: the query leaves them out" if mark.skipped else ""
        self._progress(f"{self._aggregate_type}: done, {mark.rows} rows{skipped}")
        return Backfilled(self._aggregate_type, mark.rows, mark.skipped, self._rows_now, round(self._seconds, 3))

    @property
    def _rows_now(self) -> int:
        return self._mark.rows - self._start.rows

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began
