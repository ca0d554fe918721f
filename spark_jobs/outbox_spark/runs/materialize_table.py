"""One table brought to the end of its topic, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession

from outbox_spark.jobs.model import MaterializeJob, MissedTombstones, Outcome, Progress, ReadRange, Status, Written
from outbox_spark.kafka.ranges import resolve
from outbox_spark.kafka.replay import replay
from outbox_spark.kafka.topic import Topic, topic_of
from outbox_spark.runs.apply_batch import Applied, apply
from outbox_spark.runs.batch_ranges import Batches
from outbox_spark.runs.compare_topic import Kind, compare
from outbox_spark.runs.repair import mend
from outbox_spark.runs.retention import Upkeep, now
from outbox_spark.sinks import TargetTable, open_table

BATCH_RECORDS = 5_000_000
"""Records of one batch, about: what the launchers' memory settings were measured with."""

OnBatch = Callable[[MaterializeJob, Applied, ReadRange, int], None]
"""Called when a batch is committed: its range, and how many offsets of the run are left. May raise, to end the run."""


def materialize(
    spark: SparkSession,
    job: MaterializeJob,
    tell: Progress,
    max_records: int = BATCH_RECORDS,
    *,
    topic: Topic | None = None,
    replay_from: str | None = None,
    on_batch: OnBatch | None = None,
) -> Outcome:
    """Bring one table to the end of its topic. Raises OutboxKitError; batches before the error are committed.

    `replay_from` is a time (ISO 8601) or `beginning`: what was read since then is read again.
    """
    started = time.monotonic()
    topic = topic or topic_of(spark, job)
    with open_table(spark, job, tell) as table:
        committed = table.committed()
        asked_at = now()  # before the ends: what they leave out was not written before it
        upkeep = Upkeep(job, topic.describe(), committed, asked_at)
        read = resolve(upkeep.topic, committed)
        if replay_from is not None:
            read = replay(topic, upkeep.topic, read, committed, replay_from)
        if committed is not None and read.is_empty and not upkeep.note_is_due:
            tell(f"{job}: nothing new")
            return outcome_of(job, read, Status.UNCHANGED, started, Totals())
        upkeep.check(read)
        totals = _apply_all(job, table, topic, upkeep, read, tell, max_records, on_batch)
        if upkeep.missed(read):
            totals.written = totals.written.plus(_settle(job, table, topic, upkeep, tell))
        if upkeep.forgotten is not None:
            table.expire_ledger(upkeep.forgotten)
    changed = committed is None or not read.is_empty or totals.written != Written()
    outcome = outcome_of(job, read, Status.CHANGED if changed else Status.UNCHANGED, started, totals)
    tell(_summary(job, outcome))
    if outcome.quarantined:
        tell(_quarantine_warning(outcome))
    return outcome


def _summary(job: MaterializeJob, outcome: Outcome) -> str:
    if outcome.status is Status.UNCHANGED:
        return f"{job}: nothing new"
    return (
        f"{job}: {outcome.records} records, {outcome.upserts} upserts, {outcome.deletes} deletes, "
        f"{outcome.seconds:.1f} s"
    )


def _quarantine_warning(outcome: Outcome) -> str:
    """What a person is told when records were set apart."""
    count = outcome.quarantined
    records = "1 record" if count == 1 else f"{count} records"
    place = f"{outcome.target}.{outcome.table}__quarantine"
    return (
        f"warning: {outcome.topic}: {records} could not be read and went to {place}; "
        "their keys show an older state until a newer record arrives"
    )


def _settle(job: MaterializeJob, table: TargetTable, topic: Topic, upkeep: Upkeep, tell: Progress) -> Written:
    """Remove the rows whose tombstones may have been missed."""
    if job.options.missed_tombstones is MissedTombstones.REFUSE:
        # The run itself took longer than the retention: what it has read is in the table.
        upkeep.refuse()
    tell(f"warning: {upkeep.warning()}; comparing the table with the topic")
    with ExitStack() as stack:
        registry = stack.enter_context(topic.registry())
        found = compare(job, table, topic, registry, stack)
        mended = mend(table, found, (Kind.ZOMBIE,), current_at=upkeep.asked_at)
    gone = found.counts[Kind.ZOMBIE]
    tell(f"{job}: {gone} rows whose tombstones were missed, {mended.deletes} of them removed")
    if found.counts[Kind.UNPROVEN]:
        tell(f"warning: {job}: {found.words}; the next run looks again")
    return mended


@dataclass
class Totals:
    """Sums over the batches of a run."""

    batches: int = 0
    records: int = 0
    keys: int = 0
    written: Written = field(default_factory=Written)

    def add(self, applied: Applied) -> None:
        """Count one more batch. Keys that occur in two batches count twice."""
        self.batches += 1
        self.records += applied.records
        self.keys += applied.keys
        self.written = self.written.plus(applied.written)


def _apply_all(
    job: MaterializeJob,
    table: TargetTable,
    topic: Topic,
    upkeep: Upkeep,
    read: ReadRange,
    tell: Progress,
    max_records: int,
    on_batch: OnBatch | None,
) -> Totals:
    committed, totals, batches = upkeep.previous, Totals(), Batches(read, max_records)
    started = time.monotonic()
    with topic.registry() as registry:
        # An empty topic, too, makes a table.
        batch: ReadRange | None = batches.next_batch() or read
        while batch is not None:
            progress = partial(upkeep.stamped, read=read, last=not batches.remaining)
            applied = apply(job, table, committed, batch, topic, registry, progress)
            committed = applied.committed
            totals.add(applied)
            batches.held(applied.records)
            if on_batch is not None:
                on_batch(job, applied, batch, batches.remaining)
            if batches.remaining:
                tell(_progress(job, totals, batches.share_done, time.monotonic() - started))
            batch = batches.next_batch()
    return totals


def _progress(job: MaterializeJob, totals: Totals, share: float, seconds: float) -> str:
    rate = totals.records / max(seconds, 0.001)
    left = seconds / share - seconds if share > 0 else 0.0
    return (
        f"{job}: batch {totals.batches}: {totals.records} records, {totals.written.upserts} upserts so far, "
        f"{rate:,.0f} records/s, {share:.0%} of the offsets, about {left:.0f} s left"
    )


def outcome_of(job: MaterializeJob, read: ReadRange, status: Status, started: float, totals: Totals) -> Outcome:
    """The result of a run that did not fail."""
    return Outcome(
        aggregate=job.aggregate,
        topic=job.topic,
        target=job.target_name,
        table=job.table,
        status=status,
        records=totals.records,
        keys=totals.keys,
        upserts=totals.written.upserts,
        deletes=totals.written.deletes,
        tombstones=totals.written.tombstones,
        quarantined=totals.written.quarantined,
        batches=totals.batches,
        seconds=round(time.monotonic() - started, 3),
        offsets_from=read.start,
        offsets_to=read.end,
    )
