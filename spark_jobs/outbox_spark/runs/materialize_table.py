"""Materialize one topic up to its end, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial

from pyspark.sql import SparkSession

from outbox_events.text import plural
from outbox_spark.jobs.model import MaterializeJob, MissedTombstones, Outcome, ReadRange, Reporter, Status, WriteCounts
from outbox_spark.kafka.offset_ranges import resolve_range
from outbox_spark.kafka.replay import replay
from outbox_spark.kafka.topic_access import Topic, topic_of
from outbox_spark.runs.apply_batch import AppliedBatch, apply
from outbox_spark.runs.batches import Batches
from outbox_spark.runs.clients import Clients
from outbox_spark.runs.compare_topic import compare_with_topic
from outbox_spark.runs.missed_tombstones import TombstoneRetention
from outbox_spark.runs.prepared_rows import PreparedRows
from outbox_spark.runs.repair import repair_table
from outbox_spark.runs.retry_quarantined import retry_quarantined
from outbox_spark.runs.row_differences import DifferenceKind
from outbox_spark.session.run_session import in_run_session
from outbox_spark.session.task_progress import reporting_tasks
from outbox_spark.sinks import TargetTable, open_table

BATCH_RECORDS = 5_000_000
"""Default for the approximate number of records of a batch, except for the first run of a table, which is one batch."""
NOTHING_NEW = "nothing new"

OnBatch = Callable[[AppliedBatch, ReadRange, int], None]
"""Called after each commit with the batch's range and the number of remaining offsets. An exception ends the run."""


@in_run_session
def materialize(
    spark: SparkSession,
    job: MaterializeJob,
    report: Reporter,
    max_records: int | None = None,
    *,
    topic: Topic | None = None,
    replay_from: str | None = None,
    on_batch: OnBatch | None = None,
    clients: Clients | None = None,
    prepared: PreparedRows | None = None,
) -> Outcome:
    """Materialize the topic up to its end. Raises OutboxError; batches committed before the error remain.

    A batch has approximately `max_records` records. By default, a new table is written in one batch, because each later
    batch would be merged into the rows of the previous ones; other runs have batches of BATCH_RECORDS.

    If `replay_from` is set to a time (ISO 8601) or `beginning`, records since that time are read again. `clients` keeps
    connections for the next run of any job of this thread, and `prepared` the plan of small batches for the next run of
    the same job.
    """
    started = time.monotonic()
    if topic is None:
        topic = topic_of(spark, job) if clients is None else clients.topic(spark, job)
    with open_table(spark, job, report, None if clients is None else clients.postgres) as table:
        committed, totals, is_retried = table.committed(), Totals(), False
        retention = TombstoneRetention.start(job, table, topic, committed)
        read_range = resolve_range(retention.topic, committed)
        if committed is None:
            _report_new_table(job, read_range, report, is_deleted=retention.topic.is_deleted)
        if replay_from is not None:
            read_range = replay(topic, retention.topic, read_range, committed, replay_from)
        retention.check_missed_tombstones(read_range)
        # A quarantined record must not be applied while a newer tombstone of its key may have been missed.
        if committed is not None and not retention.may_miss_tombstones(read_range):
            retention.previous, totals.written = retry_quarantined(job, table, committed, topic, report)
            is_retried = retention.previous is not committed
        if committed is not None and read_range.is_empty and not retention.commit_is_due:
            if not is_retried:
                report(f"{job}: {NOTHING_NEW}")
            return outcome_of(job, read_range, Status.CHANGED if is_retried else Status.UNCHANGED, started, totals)
        limit = max_records or (BATCH_RECORDS if committed is not None else max(read_range.offset_count, 1))
        with reporting_tasks(spark, job, report):
            _apply_all(job, table, topic, retention, read_range, report, limit, on_batch, totals, prepared)
        if retention.may_miss_tombstones(read_range):
            totals.written = totals.written.plus(_remove_zombies(job, table, topic, retention, report))
        if retention.expire_before is not None:
            table.expire_ledger(retention.expire_before)
    changed = committed is None or is_retried or not read_range.is_empty or totals.written != WriteCounts()
    outcome = outcome_of(job, read_range, Status.CHANGED if changed else Status.UNCHANGED, started, totals)
    report(_summary(job, outcome))
    if outcome.quarantined:
        report(_quarantine_warning(outcome))
    return outcome


def _summary(job: MaterializeJob, outcome: Outcome) -> str:
    if outcome.status is Status.UNCHANGED:
        return f"{job}: {NOTHING_NEW}"
    return (
        f"{job}: {outcome.records} records, {outcome.upserts} upserts, {outcome.deletes} deletes, "
        f"{outcome.seconds:.1f} s"
    )


def _report_new_table(job: MaterializeJob, read_range: ReadRange, report: Reporter, *, is_deleted: bool) -> None:
    report(f"{job}: create the table, and read {plural(read_range.offset_count, 'offset')}")
    if is_deleted:
        report(
            f"warning: {job}: cleanup.policy of the topic contains `delete`: states that retention.ms removes before "
            "they are read, or before a rebuild, are missing from the table; use `compact` for a topic of states"
        )


def _quarantine_warning(outcome: Outcome) -> str:
    verb, table = "was" if outcome.quarantined == 1 else "were", f"{outcome.target}.{outcome.table}__quarantine"
    return (
        f"warning: {outcome.topic}: {plural(outcome.quarantined, 'record')} could not be read and {verb} written to "
        f"{table}; the rows of their keys have an older state until a newer record arrives"
    )


def _remove_zombies(
    job: MaterializeJob, table: TargetTable, topic: Topic, retention: TombstoneRetention, report: Reporter
) -> WriteCounts:
    """Compare the table with the topic and delete the rows whose tombstones were missed."""
    if job.options.missed_tombstones is MissedTombstones.REFUSE:
        # The run took longer than the retention, and its batches are already committed.
        raise retention.refusal()
    report(f"warning: {retention.warning()}; comparing the table with the topic")
    with topic.open_registry() as registry, ExitStack() as stack:
        comparison = compare_with_topic(job, table, topic, registry, stack, 0, compare_fields=False)
        written = repair_table(table, comparison, (DifferenceKind.ZOMBIE,), current_at=retention.requested_at)
    zombies = comparison.counts[DifferenceKind.ZOMBIE]
    report(f"{job}: the tombstones of {zombies} rows were missed; {written.deletes} of these rows were deleted")
    if comparison.counts[DifferenceKind.UNPROVEN]:
        report(f"warning: {job}: {comparison.scan_result}; the next run compares again")
    return written


@dataclass
class Totals:
    """Sums over the batches of a run."""

    batches: int = 0
    records: int = 0
    keys: int = 0
    written: WriteCounts = field(default_factory=WriteCounts)

    def add(self, applied: AppliedBatch) -> None:
        """Add one batch. A key that occurs in two batches counts twice."""
        self.batches += 1
        self.records += applied.record_count
        self.keys += applied.key_count
        self.written = self.written.plus(applied.written)


def _apply_all(
    job: MaterializeJob,
    table: TargetTable,
    topic: Topic,
    retention: TombstoneRetention,
    read_range: ReadRange,
    report: Reporter,
    max_records: int,
    on_batch: OnBatch | None,
    totals: Totals,
    prepared: PreparedRows | None,
) -> None:
    committed, batches = retention.previous, Batches(read_range, max_records)
    started = time.monotonic()
    with topic.open_registry() as registry:
        # An empty batch creates the table of an empty topic.
        batch: ReadRange | None = batches.next_batch() or read_range
        while batch is not None:
            advance = partial(retention.advance, read_range=read_range, is_last=not batches.remaining_offsets)
            quarantined = totals.written.quarantined
            applied = apply(job, table, committed, batch, topic, registry, advance, prepared, quarantined)
            committed = applied.committed
            totals.add(applied)
            batches.adapt(applied.record_count)
            if on_batch is not None:
                on_batch(applied, batch, batches.remaining_offsets)
            if batches.remaining_offsets:
                report(_batch_message(job, totals, batches.share_done, time.monotonic() - started))
            batch = batches.next_batch()


def _batch_message(job: MaterializeJob, totals: Totals, share: float, seconds: float) -> str:
    rate = totals.records / max(seconds, 0.001)
    seconds_left = seconds / share - seconds if share > 0 else 0.0
    return (
        f"{job}: batch {totals.batches}: {totals.records} records, {totals.written.upserts} upserts so far, "
        f"{rate:,.0f} records/s, {share:.0%} of the offsets, about {seconds_left:.0f} s left"
    )


def outcome_of(job: MaterializeJob, read_range: ReadRange, status: Status, started: float, totals: Totals) -> Outcome:
    """Return the outcome of a successful run. `started` is the value of time.monotonic() at the start of the run."""
    return Outcome(
        **job.report_fields,
        status=status,
        records=totals.records,
        keys=totals.keys,
        **asdict(totals.written),
        batches=totals.batches,
        seconds=round(time.monotonic() - started, 3),
        offsets_from=read_range.start,
        offsets_to=read_range.end,
    )
