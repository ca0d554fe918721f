"""Applies one batch: reduce to the newest record of each key, decode, quarantine unreadable records, write."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.errors import RefusedError
from outbox_spark.jobs.model import Committed, MaterializeJob, Mode, ReadRange, Written
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.kafka.topic_access import Topic
from outbox_spark.runs.batch_decoder import BatchDecoder
from outbox_spark.runs.newest_per_key import (
    SUMMARIZED,
    Summary,
    aggregated,
    newest_of,
    ordering_of,
    summarize,
    summary_from,
    summary_metrics,
)
from outbox_spark.session.persisted import (
    Counts,
    allow_topic_reads,
    count_rows,
    counts_from,
    forbid_topic_reads,
    persist,
)
from outbox_spark.session.stage_metrics import label
from outbox_spark.sinks import Batch, StagedRows, TargetTable


@dataclass(frozen=True)
class Applied:
    """One committed batch."""

    committed: Committed
    records: int
    keys: int
    written: Written
    newest: datetime | None = None
    """Kafka timestamp of the newest record."""


@dataclass(frozen=True)
class _Decoded:
    """Rows of a range, persisted or (with `staged`) already received by the target, and their counts."""

    rows: DataFrame
    summary: Summary
    counts: Counts
    staged: StagedRows | None = None


def apply(
    job: MaterializeJob,
    table: TargetTable,
    committed: Committed | None,
    read: ReadRange,
    topic: Topic,
    registry: SchemaRegistry,
    advance: Callable[[Committed], Committed] = lambda reached: reached,
) -> Applied:
    """Reduce, decode and write one range of the topic. `advance` maps its progress to the one to commit."""
    spark, decoder = SparkSession.active(), BatchDecoder(job, table, registry)
    with ExitStack() as stack:
        forbid_topic_reads(stack, spark)
        decoder.check_table(spark)
        decoded = _decode(stack, job, table, decoder, topic, read)
        with allow_topic_reads(spark):
            ordering = ordering_of(job, decoded.summary, committed, lambda: topic.records(read))
        _check_counts(job, decoded)
        if decoded.counts.quarantined and job.options.mode is not Mode.HISTORY:
            rows = persist(stack, _with_older(stack, job, decoder, topic, read, decoded.rows))
            decoded = replace(decoded, rows=rows, counts=count_rows(rows), staged=None)
            _check_counts(job, decoded)
        label(spark, job, "write")
        new = advance(read.committed(committed, ordering))
        batch = Batch(decoded.rows, decoded.counts, decoder.columns, decoder.reader, committed, new, decoded.staged)
        summary = decoded.summary
        return Applied(new, summary.records, summary.keys, table.write(batch), summary.newest)


def _decode(
    stack: ExitStack, job: MaterializeJob, table: TargetTable, decoder: BatchDecoder, topic: Topic, read: ReadRange
) -> _Decoded:
    """Reduce and decode in one pass with the likely schemas, in two passes if a record has another schema.

    The rows are used more than once, and a compacted topic may return other records the second time: they are persisted
    unless the target stages them in the same pass.
    """
    history, likely = job.options.mode is Mode.HISTORY, decoder.likely_writers()
    newest = newest_of(job, topic, read, every_version=history)
    spark = newest.sparkSession
    label(spark, job, "reduce to the newest record of each key, decode, stage")
    rows, metrics = decoder.rows(newest, likely, SUMMARIZED), summary_metrics(likely)
    with allow_topic_reads(spark):
        staged = table.stage_early(rows, decoder.columns, metrics)
    complete = staged is None or decoder.likely_suffice(staged.metrics)
    if staged is not None:
        counts = counts_from(staged.metrics)
        if complete and counts.quarantined <= (job.options.max_quarantined if history else 0):
            return _Decoded(rows.drop(*SUMMARIZED), summary_from(staged.metrics), counts, staged)
        # Unreadable records are read again by _with_older and _check_counts. They often continue in later batches, so
        # early staging is disabled; a schema that was unknown is known from now on.
        table.discard(staged, disable=complete)
    if complete:
        decoded = _persist_decoded(stack, decoder, rows, metrics, with_observation=staged is None)
        if decoded is not None:
            return decoded
    # Nothing of the first pass is used, because the log may have changed since. Listeners have seen the batch.
    newest = persist(stack, newest_of(job, topic, read, every_version=history))
    with allow_topic_reads(spark):
        summary, schemas = summarize(newest, with_observation=False)
    label(spark, job, "decode")
    rows = persist(stack, decoder.rows(newest, decoder.writers(schemas)))
    return _Decoded(rows, summary, count_rows(rows))


def _persist_decoded(
    stack: ExitStack, decoder: BatchDecoder, rows: DataFrame, metrics: list[Column], *, with_observation: bool
) -> _Decoded | None:
    """Return the rows, persisted; None if a record has another schema than expected."""
    with ExitStack() as attempt:
        rows = persist(attempt, rows)
        with allow_topic_reads(rows.sparkSession):
            values = aggregated(rows, metrics, with_observation=with_observation)
        if not decoder.likely_suffice(values):
            return None
        stack.push(attempt.pop_all())
        return _Decoded(rows.drop(*SUMMARIZED), summary_from(values), counts_from(values))


def _check_counts(job: MaterializeJob, decoded: _Decoded) -> None:
    """Raise RefusedError if there are more rows for the quarantine than max_quarantined."""
    counts = decoded.counts
    if counts.quarantined <= job.options.max_quarantined:
        return
    rows = decoded.rows.where(F.col("_reason").isNotNull()).groupBy("_reason").count().collect()
    reasons = ", ".join(f"{row['_reason']} ({row['count']})" for row in sorted(rows, key=lambda row: -row["count"]))
    message = (
        f"topic {job.topic}: {counts.quarantined} records of one batch cannot be read, "
        f"and max_quarantined is {job.options.max_quarantined}: {reasons}"
    )
    raise RefusedError(message, "nothing was written; find their producer, or raise max_quarantined")


def _with_older(
    stack: ExitStack, job: MaterializeJob, decoder: BatchDecoder, topic: Topic, read: ReadRange, rows: DataFrame
) -> DataFrame:
    """Return `rows`, and for keys whose newest record is unreadable the newest readable one and those after it.

    Otherwise the row would depend on batch boundaries: a readable record that a run shows when it ends before the
    unreadable one would be skipped by a run that ends after it. Requires a second read of the range, only for batches
    with unreadable records.
    """
    has_key = F.col(KEY_COLUMN).isNotNull()
    unreadable = [row[0] for row in rows.where(F.col("_reason").isNotNull() & has_key).select(KEY_COLUMN).collect()]
    if not unreadable:
        return rows
    versions = newest_of(job, topic, read, every_version=True)
    versions = persist(stack, versions.where(F.col("key").cast("string").isin(unreadable)))
    with allow_topic_reads(rows.sparkSession):
        _, schemas = summarize(versions, with_observation=False)
    older = decoder.rows(versions, decoder.writers(schemas, complete=False))
    affected = F.coalesce(F.col(KEY_COLUMN).isin(unreadable), F.lit(False))
    # Records of the first read may have been compacted away before the second.
    both = older.unionByName(rows.where(affected)).dropDuplicates(["_partition", "_offset"])
    return rows.where(~affected).unionByName(_from_newest_readable(both))


def _from_newest_readable(versions: DataFrame) -> DataFrame:
    """Return of each key the newest readable version and the unreadable ones after it."""
    version = F.struct(*VERSION_COLUMNS)
    newest = F.max(F.when(F.col("_reason").isNull(), version)).over(Window.partitionBy(KEY_COLUMN))
    retained = newest.isNull() | (version >= newest)
    return versions.withColumn("_kept", retained).where("_kept").drop("_kept")
