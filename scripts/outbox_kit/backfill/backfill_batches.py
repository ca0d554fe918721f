"""backfill: write one outbox row per aggregate, with its latest state, in batches that can be interrupted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from outbox_kit.backfill.newest_states import AggregateStates, open_states
from outbox_kit.backfill.progress_table import BackfillProgress, ProgressTable
from outbox_kit.backfill.session import LOCK_TIMEOUT_S, Session, open_session, retry_deadlocks
from outbox_kit.deployment import Deployment
from outbox_kit.errors import ConfigurationError
from outbox_kit.postgres import ddl
from outbox_kit.progress import Reporter

EVENT_TYPE = "backfill"
REPORT_EVERY_S = 1.0
# Planner's estimate of the row count, -1 before the first ANALYZE. Partitioned tables have it since PostgreSQL 14.
ESTIMATE_SQL: LiteralString = "select reltuples::bigint as rows from pg_class where oid = to_regclass(%s)"


@dataclass(frozen=True)
class BackfillOptions:
    """Options of `outbox backfill`."""

    batch_size: int = 500
    rows_per_second: float | None = None
    restart: bool = False
    delete: bool = False
    lock_seconds: float = LOCK_TIMEOUT_S


@dataclass(frozen=True)
class BackfillResult:
    """Result for one aggregate type. `rows` counts the rows of all runs since --restart, `rows_now` of this run."""

    aggregate_type: str
    rows: int
    skipped: int
    rows_now: int
    seconds: float


def backfill(
    deployment: Deployment, aggregate_types: Sequence[str], progress: Reporter, options: BackfillOptions | None = None
) -> list[BackfillResult]:
    """Write the latest state of every aggregate of these types (default: all with a `backfill`) to the outbox.

    Each batch commits its rows together with its progress, so the next run continues after an interruption, and no
    aggregate is written twice. A completed backfill is run again only with `restart`.

    Raises ConfigurationError, RefusedError, RejectedError, UnreachableError.
    """
    options = options or BackfillOptions()
    names = aggregate_types or [name for name, entry in deployment.pipeline.aggregates.items() if entry.backfill]
    if not names:
        message = f"no aggregate of pipeline {deployment.pipeline.name} has a `backfill`"
        raise ConfigurationError(message, "set aggregates.TYPE.backfill in the pipeline file; see docs/backfill.md")
    with open_session(deployment, lock_seconds=options.lock_seconds) as session:
        connection, pipeline, delete = session.connection, deployment.pipeline, options.delete
        states_per_type = [open_states(connection, pipeline, name, delete=delete) for name in dict.fromkeys(names)]
        return [_backfill_type(session, states, progress, options) for states in states_per_type]


def _backfill_type(
    session: Session, states: AggregateStates, progress: Reporter, options: BackfillOptions
) -> BackfillResult:
    table = ProgressTable(session.deployment.pipeline, states.aggregate_type)
    with session.connection.transaction():
        table.create(session.connection)
        stored = table.begin(session.connection, restart=options.restart)
    if stored.finished_at is not None:
        progress(f"{states.aggregate_type}: finished on {stored.finished_at:%Y-%m-%d %H:%M}; repeat it with --restart")
        return BackfillResult(states.aggregate_type, stored.rows, stored.skipped, 0, 0.0)
    if stored.last_key is not None:
        progress(f"{states.aggregate_type}: resume after {stored.rows + stored.skipped} aggregates")
    row = session.connection.execute(ESTIMATE_SQL, (ddl.qualified(states.backfill.table).as_string(),)).fetchone()
    estimate = row["rows"] if row and row["rows"] >= 0 else None
    meter = ProgressMeter(states.aggregate_type, estimate, stored, progress)
    size = options.batch_size
    if options.rows_per_second:
        size = max(1, min(size, round(options.rows_per_second)))
    while (stored := retry_deadlocks()(_write_batch, session, states, table, size)).finished_at is None:
        meter.update(stored)
        if options.rows_per_second:
            meter.limit_rate(options.rows_per_second)
    return meter.finish(stored)


def _write_batch(session: Session, states: AggregateStates, table: ProgressTable, size: int) -> BackfillProgress:
    """Write the states of the next keys, and the progress, in one transaction; return the progress."""
    connection = session.connection
    with session.transaction(f"rows of {states.backfill.table}"):
        stored = table.lock(connection)
        if stored.finished_at is not None:  # a concurrent backfill has finished
            return stored
        keys = states.next_keys(connection, stored.last_key, size)
        if not keys:
            table.finish(connection)
            return table.lock(connection)
        written = len(states.publish(connection, keys, EVENT_TYPE).written_keys)
        table.advance(connection, keys[-1], rows=written, skipped=len(keys) - written)
        return table.lock(connection)


class ProgressMeter:
    """Reports the progress of a backfill, at most once per REPORT_EVERY_S, and limits the rate of the backfill."""

    def __init__(self, aggregate_type: str, estimate: int | None, start: BackfillProgress, progress: Reporter) -> None:
        self._aggregate_type = aggregate_type
        self._estimate = estimate
        self._start = start
        self._current = start
        self._progress = progress
        self._started_at = self._reported_at = time.monotonic()

    def update(self, current: BackfillProgress) -> None:
        self._current = current
        if time.monotonic() - self._reported_at >= REPORT_EVERY_S:
            self._reported_at = time.monotonic()
            self._progress(self.describe())

    def describe(self) -> str:
        """Return counts, rate, and the number of remaining aggregates according to the planner's estimate."""
        processed = self._current.rows + self._current.skipped
        remaining_text = "" if self._estimate is None else f", about {max(0, self._estimate - processed)} left"
        skipped_text = f", {self._current.skipped} skipped" if self._current.skipped else ""
        rate = self._rows_now / self._seconds if self._seconds else 0
        return f"{self._aggregate_type}: {self._current.rows} rows{skipped_text}, {rate:.0f} rows/s{remaining_text}"

    def limit_rate(self, rows_per_second: float) -> None:
        """Sleep until the rate is at most `rows_per_second`."""
        delay = self._rows_now / rows_per_second - self._seconds
        if delay > 0:
            time.sleep(delay)

    def finish(self, final: BackfillProgress) -> BackfillResult:
        self._current = final
        skipped_text = f", {final.skipped} skipped, because the query does not return them" if final.skipped else ""
        self._progress(f"{self._aggregate_type}: finished, {final.rows} rows{skipped_text}")
        return BackfillResult(self._aggregate_type, final.rows, final.skipped, self._rows_now, round(self._seconds, 3))

    @property
    def _rows_now(self) -> int:
        return self._current.rows - self._start.rows

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started_at
