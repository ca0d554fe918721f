"""Implement `outbox backfill`, which writes each aggregate's latest state as one outbox row, in batches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from outbox_events.errors import ConfigurationError
from outbox_events.text import plural
from outbox_kit.backfill import pending_backfills
from outbox_kit.backfill.newest_states import AggregateStates, open_states
from outbox_kit.backfill.progress_table import BackfillProgress, ProgressTable
from outbox_kit.backfill.session import LOCK_TIMEOUT_S, Session, open_session, report_committed_batches, retry_deadlocks
from outbox_kit.deployment import Deployment
from outbox_kit.postgres import ddl
from outbox_kit.results import Reporter

EVENT_TYPE = "backfill"
REPORT_INTERVAL_S = 1.0
# The planner's row count estimate is -1 before the first ANALYZE. PostgreSQL 13 has none for partitioned tables.
ESTIMATE_SQL: LiteralString = "select reltuples::bigint as row_count from pg_class where oid = to_regclass(%s)"


@dataclass(frozen=True)
class BackfillOptions:
    """Options of `outbox backfill`. With `delete`, each outbox row is deleted in the transaction that inserts it.

    With `stays_pending`, the lock file still contains the pending backfill afterwards.
    """

    batch_size: int = 500
    rows_per_second: float | None = None
    restart: bool = False
    delete: bool = False
    lock_seconds: float = LOCK_TIMEOUT_S
    stays_pending: bool = False


@dataclass(frozen=True)
class BackfillResult:
    """Counts for one aggregate type. `rows_now` and `seconds` do not include earlier, interrupted runs."""

    aggregate_type: str
    rows: int
    skipped: int
    rows_now: int
    seconds: float


def backfill(
    deployment: Deployment, aggregate_types: Sequence[str], progress: Reporter, options: BackfillOptions | None = None
) -> list[BackfillResult]:
    """Write the latest state of every aggregate of the given types, or of all types that have a `backfill`.

    Each batch commits its outbox rows together with its progress. The next run continues an interrupted backfill, and
    does not write an aggregate twice. A completed backfill is repeated only with `options.restart`, or if the lock file
    requires a backfill of the topic. In the latter case, the completion is recorded in the lock file. After all types,
    raise ConfigurationError if a query returned no state for any row; the backfill of this type remains pending.

    Raises ConfigurationError, RefusedError, RejectedError, UnreachableError.
    """
    options = options or BackfillOptions()
    type_names = aggregate_types or [name for name, entry in deployment.pipeline.aggregates.items() if entry.backfill]
    if not type_names:
        message = f"pipeline {deployment.pipeline.name} does not have an aggregate type with a `backfill`"
        raise ConfigurationError(message, "set aggregates.TYPE.backfill in the pipeline file; see docs/backfill.md")
    with (
        open_session(deployment, type_names, lock_seconds=options.lock_seconds) as session,
        report_committed_batches(progress),
    ):
        connection, pipeline, delete = session.connection, deployment.pipeline, options.delete
        states_per_type = [open_states(connection, pipeline, name, delete=delete) for name in dict.fromkeys(type_names)]
        results = [_backfill_type(session, states, progress, options) for states in states_per_type]
    for states, result in zip(states_per_type, results, strict=True):
        is_pending = pending_backfills.is_pending(deployment, result.aggregate_type)
        if is_pending and _has_no_states(result.rows, result.skipped):
            raise _no_states_error(states, result.skipped)
    return results


def _backfill_type(
    session: Session, states: AggregateStates, progress: Reporter, options: BackfillOptions
) -> BackfillResult:
    aggregate_type = states.aggregate_type
    topic_id = pending_backfills.topic_id(session.deployment, aggregate_type)
    table = ProgressTable(session.deployment.pipeline, aggregate_type, topic_id)
    state = _begin(session, table, restart=options.restart)
    if state.finished_at is not None:
        _record_end(session, aggregate_type, state)
        progress(f"{aggregate_type}: finished on {state.finished_at:%Y-%m-%d %H:%M}; repeat it with --restart")
        return BackfillResult(aggregate_type, state.row_count, state.skipped_count, 0, 0.0)
    if state.last_key is not None:
        progress(f"{aggregate_type}: resume after {state.row_count + state.skipped_count} aggregates")
    row = session.connection.execute(ESTIMATE_SQL, (ddl.quoted_text(states.backfill.table),)).fetchone()
    estimate = row["row_count"] if row and row["row_count"] >= 0 else None
    meter = ProgressMeter(aggregate_type, estimate, state, progress)
    batch_size = options.batch_size
    if options.rows_per_second:
        batch_size = max(1, min(batch_size, round(options.rows_per_second)))
    while (state := retry_deadlocks(lambda: _write_batch(session, states, table, batch_size))).finished_at is None:
        meter.update(state)
        if options.rows_per_second:
            meter.limit_rate(options.rows_per_second)
    if not options.stays_pending:
        _record_end(session, aggregate_type, state)
    return meter.finish(state)


def _begin(session: Session, table: ProgressTable, *, restart: bool) -> BackfillProgress:
    """Return the stored progress. Delete it first if the topic has lost states since the progress was stored."""
    is_required = pending_backfills.is_required(session.deployment, table.aggregate_type)
    with session.connection.transaction():
        table.create(session.connection)
        state = table.begin(session.connection, restart=restart or is_required)
        is_pending = pending_backfills.is_pending(session.deployment, table.aggregate_type)
        if state.finished_at is not None and is_pending and _has_no_states(state.row_count, state.skipped_count):
            state = table.begin(session.connection, restart=True)
    pending_backfills.begin(session.deployment, table.aggregate_type, restart=restart and not is_required)
    return state


def _write_batch(session: Session, states: AggregateStates, table: ProgressTable, limit: int) -> BackfillProgress:
    """In one transaction, write the states of at most `limit` keys, and the progress. Return the progress."""
    connection = session.connection
    with session.transaction(f"rows of {states.backfill.table}"):
        previous_state = table.lock(connection)
        if previous_state.finished_at is not None:  # a concurrent run has completed this backfill
            return previous_state
        keys = states.next_keys(connection, previous_state.last_key, limit)
        if not keys:
            table.finish(connection)
            return table.lock(connection)
        row_count = len(states.write_states(connection, keys, EVENT_TYPE))
        table.advance(connection, keys[-1], row_count=row_count, skipped_count=len(keys) - row_count)
        return table.lock(connection)


def _record_end(session: Session, aggregate_type: str, state: BackfillProgress) -> None:
    if not _has_no_states(state.row_count, state.skipped_count):
        pending_backfills.finish(session.deployment, aggregate_type)


def _has_no_states(row_count: int, skipped_count: int) -> bool:
    return skipped_count > 0 and row_count == 0


def _no_states_error(states: AggregateStates, count: int) -> ConfigurationError:
    """Return the error for a query that returns no state for any row, as if all aggregates were deleted."""
    name, backfill = states.aggregate_type, states.backfill
    hint = "correct the query, or a trigger that omits the outbox rows, and run the command again"
    if len(backfill.key) > 1:
        hint = f"compare :keys with the columns ({', '.join(backfill.key)}) in the order of `key`; {hint}"
    return ConfigurationError(
        f"aggregates.{name}.backfill.query returned no state for any of {plural(count, 'row')} of {backfill.table}",
        f"{hint}; if no row has a state, run `outbox backfill --acknowledge {name}`",
    )


class ProgressMeter:
    """Reports the progress of a backfill, at most once per REPORT_INTERVAL_S, and limits the rate of the backfill."""

    def __init__(self, aggregate_type: str, total: int | None, start: BackfillProgress, progress: Reporter) -> None:
        self._aggregate_type = aggregate_type
        self._total = total
        self._start_state = start
        self._current_state = start
        self._progress = progress
        self._started_at = self._reported_at = time.monotonic()

    def update(self, state: BackfillProgress) -> None:
        self._current_state = state
        if time.monotonic() - self._reported_at >= REPORT_INTERVAL_S:
            self._reported_at = time.monotonic()
            self._progress(self.describe())

    def describe(self) -> str:
        """Return a text with the counts of all runs, the rate of this run, and how many aggregates are left."""
        state = self._current_state
        processed_count = state.row_count + state.skipped_count
        remaining_text = "" if self._total is None else f", about {max(0, self._total - processed_count)} left"
        skipped_text = f", {state.skipped_count} skipped" if state.skipped_count else ""
        rate = self._new_count / self._seconds if self._seconds else 0
        return f"{self._aggregate_type}: {state.row_count} rows{skipped_text}, {rate:.0f} rows/s{remaining_text}"

    def limit_rate(self, rows_per_second: float) -> None:
        """Sleep until the average rate of this run is at most `rows_per_second`."""
        delay = self._new_count / rows_per_second - self._seconds
        if delay > 0:
            time.sleep(delay)

    def finish(self, state: BackfillProgress) -> BackfillResult:
        self._current_state = state
        skipped = state.skipped_count
        skipped_text = f", {skipped} skipped, because the query returns no state for them" if skipped else ""
        self._progress(f"{self._aggregate_type}: finished, {state.row_count} rows{skipped_text}")
        return BackfillResult(self._aggregate_type, state.row_count, skipped, self._new_count, round(self._seconds, 3))

    @property
    def _new_count(self) -> int:
        return self._current_state.row_count - self._start_state.row_count

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started_at
