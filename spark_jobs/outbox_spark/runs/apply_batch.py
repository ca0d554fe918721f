"""One batch: reduce, decode, set apart what cannot be read, write."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.batch_decoder import Decoding
from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.decoding.rows import types_of
from outbox_spark.decoding.schema_registry import SchemaRegistry
from outbox_spark.errors import RefusedError
from outbox_spark.jobs.model import Committed, MaterializeJob, Mode, ReadRange, Written
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.kafka.topic import Topic
from outbox_spark.runs.newest_per_key import (
    SUMMARIZED,
    Summary,
    aggregated,
    ordering_of,
    summarize,
    summary_in,
    sums_of,
)
from outbox_spark.session.persisted import Counts, counted, counts_in, keep_to_kept, kept, reading
from outbox_spark.session.stage_metrics import label
from outbox_spark.sinks import Batch, StagedRows, TargetTable


@dataclass(frozen=True)
class Applied:
    """One batch that is in the table now."""

    committed: Committed
    records: int
    keys: int
    written: Written
    newest: datetime | None = None
    """Kafka timestamp of the newest record."""


def apply(
    job: MaterializeJob,
    table: TargetTable,
    committed: Committed | None,
    read: ReadRange,
    topic: Topic,
    registry: SchemaRegistry,
    progress: Callable[[Committed], Committed] = lambda reached: reached,
) -> Applied:
    """Reduce, decode and write one range of the topic.

    `progress` makes what is committed of what the range alone says.
    """
    spark, decoding = SparkSession.active(), Decoding(job, table, registry)
    with ExitStack() as stack:
        keep_to_kept(stack, spark)
        table.check(decoding.columns, types_of(spark, decoding.columns, decoding.reader))
        found = _read(stack, job, table, decoding, topic, read)
        with reading(spark):
            ordering = ordering_of(job, found.summary, committed, lambda: topic.records(read))
        _check_counts(job, found)
        if found.counts.quarantined and job.options.mode is not Mode.HISTORY:
            rows = kept(stack, _with_older(stack, decoding, topic, read, found.rows))
            found = replace(found, rows=rows, counts=counted(rows), staged=None)
            _check_counts(job, found)
        label(spark, job, "write")
        new = progress(read.committed(committed, ordering))
        batch = Batch(found.rows, found.counts, decoding.columns, decoding.reader, committed, new, found.staged)
        summary = found.summary
        return Applied(new, summary.records, summary.keys, table.write(batch), summary.newest)


@dataclass(frozen=True)
class _Found:
    """What a range holds: rows that are kept or, with `staged`, are at the table already; and counts of them."""

    rows: DataFrame
    summary: Summary
    counts: Counts
    staged: StagedRows | None = None


def _read(
    stack: ExitStack, job: MaterializeJob, table: TargetTable, decoding: Decoding, topic: Topic, read: ReadRange
) -> _Found:
    """Reduce and decode in one pass, with the schemas that are likely; in two, where a record has another one.

    Kept, because it is used more than once and a compacted topic may answer differently the second time; unless the
    table takes the rows in that pass.
    """
    every, likely = job.options.mode is Mode.HISTORY, decoding.likely()
    latest = decoding.newest(topic, read, every_version=every)
    spark = latest.sparkSession
    label(spark, job, "reduce to the newest record of each key, decode, stage")
    rows, sums = decoding.rows(latest, likely, SUMMARIZED), sums_of(likely)
    with reading(spark):
        staged = table.stage_early(rows, decoding.columns, sums)
    enough = staged is None or decoding.are_enough(staged.metrics)
    if staged is not None:
        counts = counts_in(staged.metrics)
        if enough and counts.quarantined <= (job.options.max_quarantined if every else 0):
            return _Found(rows.drop(*SUMMARIZED), summary_in(staged.metrics), counts, staged)
        # What cannot be read must be looked at again, see _with_older and _check_counts. Where one record cannot be
        # read, later ones often cannot; another schema is known from now on.
        table.discard(staged, disable=enough)
    if enough:
        found = _kept(stack, decoding, rows, sums, observed=staged is None)
        if found is not None:
            return found
    # Of what was read nothing is used: the log may have changed meanwhile. Listeners have seen the batch.
    latest = kept(stack, decoding.newest(topic, read, every_version=every))
    with reading(spark):
        summary, schemas = summarize(latest, observed=False)
    label(spark, job, "decode")
    rows = kept(stack, decoding.rows(latest, decoding.writers(schemas)))
    return _Found(rows, summary, counted(rows))


def _kept(
    stack: ExitStack, decoding: Decoding, rows: DataFrame, sums: list[Column], *, observed: bool
) -> _Found | None:
    """Rows that are kept; None where a record has another schema than those that were expected."""
    with ExitStack() as attempt:
        rows = kept(attempt, rows)
        with reading(rows.sparkSession):
            found = aggregated(rows, sums, observed=observed)
        if not decoding.are_enough(found):
            return None
        stack.push(attempt.pop_all())
        return _Found(rows.drop(*SUMMARIZED), summary_in(found), counts_in(found))


def _check_counts(job: MaterializeJob, found: _Found) -> None:
    """Raises RefusedError when there are more rows for quarantine than the table may have at once."""
    counts = found.counts
    if counts.quarantined > job.options.max_quarantined:
        reasons_of = found.rows.where(F.col("_reason").isNotNull()).groupBy("_reason").count().collect()
        reasons = ", ".join(
            f"{row['_reason']} ({row['count']})" for row in sorted(reasons_of, key=lambda row: -row["count"])
        )
        message = (
            f"topic {job.topic}: {counts.quarantined} records of one batch cannot be read, "
            f"and max_quarantined is {job.options.max_quarantined}: {reasons}"
        )
        raise RefusedError(message, "nothing was written; find out who produced them, or raise max_quarantined")


def _with_older(stack: ExitStack, decoding: Decoding, topic: Topic, read: ReadRange, rows: DataFrame) -> DataFrame:
    """`rows`, and for every key whose newest record cannot be read the newest that can, and what is between.

    Without it the row would depend on where batches are cut: a record that was good enough to be shown by a run
    that ended before the unreadable one would be skipped by a run that ended after it. Costs a second read of the
    range, in batches with poison only.
    """
    named = F.col(KEY_COLUMN).isNotNull()
    bad = [row[0] for row in rows.where(F.col("_reason").isNotNull() & named).select(KEY_COLUMN).collect()]
    if not bad:
        return rows
    versions = decoding.newest(topic, read, every_version=True)
    theirs = kept(stack, versions.where(F.col("key").cast("string").isin(bad)))
    with reading(rows.sparkSession):
        _, schemas = summarize(theirs, observed=False)
    older = decoding.rows(theirs, decoding.writers(schemas, whole=False))
    ours = F.coalesce(F.col(KEY_COLUMN).isin(bad), F.lit(False))
    # What the first read saw may be compacted away in the second.
    both = older.unionByName(rows.where(ours)).dropDuplicates(["_partition", "_offset"])
    return rows.where(~ours).unionByName(_newest_good_and_later(both))


def _newest_good_and_later(versions: DataFrame) -> DataFrame:
    """Of each key the newest version that could be read, and those after it, which could not."""
    version = F.struct(*VERSION_COLUMNS)
    good = F.max(F.when(F.col("_reason").isNull(), version)).over(Window.partitionBy(KEY_COLUMN))
    kept = good.isNull() | (version >= good)
    return versions.withColumn("_kept", kept).where("_kept").drop("_kept")
