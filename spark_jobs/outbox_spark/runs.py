"""One table brought to the end of its topic, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from outbox_spark.applying import Applied, apply
from outbox_spark.batches import Batches
from outbox_spark.command import Tell
from outbox_spark.model import MaterializeJob, Outcome, ReadRange, Status, Written
from outbox_spark.ranges import describe, resolve
from outbox_spark.registry import SchemaRegistry
from outbox_spark.report import quarantine_warning
from outbox_spark.sinks import TargetTable, open_table
from outbox_spark.source import read_records

BATCH_RECORDS = 5_000_000
"""Records of one batch, about: what the launchers' memory settings were measured with."""

OnBatch = Callable[[MaterializeJob, Applied, ReadRange, int], None]
"""Called when a batch is committed: its range, and how many offsets of the run are left. May raise, to end the run."""


def materialize(
    spark: SparkSession,
    job: MaterializeJob,
    tell: Tell,
    max_records: int = BATCH_RECORDS,
    on_batch: OnBatch | None = None,
) -> Outcome:
    """Bring one table to the end of its topic. Raises MaterializeError; batches before the error are committed."""
    started = time.monotonic()
    with open_table(spark, job) as table:
        committed = table.committed()
        read = resolve(describe(job.kafka, job.topic), committed)
        if committed is not None and read.is_empty:
            tell(f"{job}: nothing new")
            return outcome_of(job, read, Status.UNCHANGED, started, Totals())
        totals = _apply_all(spark, job, table, read, tell, max_records, on_batch)
    outcome = outcome_of(job, read, Status.CHANGED, started, totals)
    tell(
        f"{job}: {outcome.records} records, {outcome.upserts} upserts, {outcome.deletes} deletes, "
        f"{outcome.seconds:.1f} s"
    )
    if outcome.quarantined:
        tell(quarantine_warning(outcome))
    return outcome


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
    spark: SparkSession,
    job: MaterializeJob,
    table: TargetTable,
    read: ReadRange,
    tell: Tell,
    max_records: int,
    on_batch: OnBatch | None,
) -> Totals:
    committed, totals, batches = table.committed(), Totals(), Batches(read, max_records)
    started = time.monotonic()
    with ExitStack() as stack:
        registry = stack.enter_context(SchemaRegistry(job.registry))
        # An empty topic, too, makes a table.
        batch: ReadRange | None = batches.next_batch() or read
        while batch is not None:
            applied = apply(job, table, committed, batch, read_records(spark, job.kafka, batch), registry)
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
