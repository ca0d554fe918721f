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
from outbox_spark.jobs.model import MaterializeJob, Mode, ReadRange, TableProgress, WriteCounts
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.kafka.topic_access import Topic
from outbox_spark.runs.batch_decoder import BatchDecoder
from outbox_spark.runs.newest_per_key import (
    SUMMARIZED,
    RangeSummary,
    collect_metrics,
    newest_of,
    ordering_of,
    summarize,
    summary_from,
    summary_metrics,
)
from outbox_spark.session.persisted import (
    DecodedCounts,
    allow_topic_reads,
    count_rows,
    counts_from,
    forbid_topic_reads,
    persist,
)
from outbox_spark.session.stage_metrics import label_spark_jobs
from outbox_spark.sinks import Batch, StagedRows, TargetTable


@dataclass(frozen=True)
class AppliedBatch:
    """One committed batch."""

    committed: TableProgress
    records: int
    keys: int
    written: WriteCounts
    newest: datetime | None = None
    """Kafka timestamp of the newest record."""


@dataclass(frozen=True)
class _Decoded:
    """Rows of a range and their counts. The rows are persisted or, with `staged`, already in the target."""

    rows: DataFrame
    summary: RangeSummary
    counts: DecodedCounts
    staged: StagedRows | None = None


def apply(
    job: MaterializeJob,
    table: TargetTable,
    committed: TableProgress | None,
    read_range: ReadRange,
    topic: Topic,
    registry: SchemaRegistry,
    advance: Callable[[TableProgress], TableProgress] = lambda progress: progress,
) -> AppliedBatch:
    """Reduce, decode and write one range of the topic. `advance` returns the progress to commit after the range."""
    spark, decoder = SparkSession.active(), BatchDecoder(job, table, registry)
    with ExitStack() as stack:
        forbid_topic_reads(stack, spark)
        decoder.check_table(spark)
        decoded = _decode(stack, job, table, decoder, topic, read_range)
        with allow_topic_reads(spark):
            ordering = ordering_of(job, decoded.summary, committed, lambda: topic.records(read_range))
        _check_counts(job, decoded)
        if decoded.counts.quarantined and job.options.mode is not Mode.HISTORY:
            rows = persist(stack, _with_older(stack, job, decoder, topic, read_range, decoded.rows))
            decoded = replace(decoded, rows=rows, counts=count_rows(rows), staged=None)
            _check_counts(job, decoded)
        label_spark_jobs(spark, job, "write")
        new = advance(read_range.committed(committed, ordering))
        batch = Batch(decoded.rows, decoded.counts, decoder.columns, decoder.reader, committed, new, decoded.staged)
        summary = decoded.summary
        return AppliedBatch(new, summary.records, summary.keys, table.write(batch), summary.newest)


def _decode(
    stack: ExitStack,
    job: MaterializeJob,
    table: TargetTable,
    decoder: BatchDecoder,
    topic: Topic,
    read_range: ReadRange,
) -> _Decoded:
    """Reduce and decode in one pass with the likely schemas, in two passes if a record has another schema.

    The rows are used more than once, and a compacted topic may return other records the second time: they are persisted
    unless the target stages them in the same pass.
    """
    history, likely = job.options.mode is Mode.HISTORY, decoder.likely_writers()
    newest = newest_of(job, topic, read_range, every_version=history)
    spark = newest.sparkSession
    label_spark_jobs(spark, job, "reduce to the newest record of each key, decode, stage")
    rows, metrics = decoder.rows(newest, likely, SUMMARIZED), summary_metrics(likely)
    with allow_topic_reads(spark):
        staged = table.stage_early(rows, decoder.columns, metrics)
    schemas_suffice = staged is None or decoder.likely_suffice(staged.metrics)
    if staged is not None:
        counts = counts_from(staged.metrics)
        if schemas_suffice and counts.quarantined <= (job.options.max_quarantined if history else 0):
            return _Decoded(rows.drop(*SUMMARIZED), summary_from(staged.metrics), counts, staged)
        # Unreadable records are read again by _with_older and _check_counts. Later batches often have more of them, so
        # early staging is disabled. An unexpected schema does not disable it, because it is expected from now on.
        table.discard(staged, disable=schemas_suffice)
    if schemas_suffice:
        decoded = _persist_decoded(stack, decoder, rows, metrics, with_observation=staged is None)
        if decoded is not None:
            return decoded
    # The results of the first pass are not used, because the log may have changed. Its metrics were already observed.
    newest = persist(stack, newest_of(job, topic, read_range, every_version=history))
    with allow_topic_reads(spark):
        summary, schemas = summarize(newest, with_observation=False)
    label_spark_jobs(spark, job, "decode")
    rows = persist(stack, decoder.rows(newest, decoder.writers(schemas)))
    return _Decoded(rows, summary, count_rows(rows))


def _persist_decoded(
    stack: ExitStack, decoder: BatchDecoder, rows: DataFrame, metrics: list[Column], *, with_observation: bool
) -> _Decoded | None:
    """Return the rows, persisted; None if a record has an unexpected schema."""
    with ExitStack() as attempt:
        rows = persist(attempt, rows)
        with allow_topic_reads(rows.sparkSession):
            values = collect_metrics(rows, metrics, with_observation=with_observation)
        if not decoder.likely_suffice(values):
            return None
        stack.push(attempt.pop_all())
        return _Decoded(rows.drop(*SUMMARIZED), summary_from(values), counts_from(values))


def _check_counts(job: MaterializeJob, decoded: _Decoded) -> None:
    """Raise RefusedError if more rows than max_quarantined are unreadable."""
    counts = decoded.counts
    if counts.quarantined <= job.options.max_quarantined:
        return
    rows = decoded.rows.where(F.col("_reason").isNotNull()).groupBy("_reason").count().collect()
    reasons = ", ".join(f"{row['_reason']} ({row['count']})" for row in sorted(rows, key=lambda row: -row["count"]))
    message = (
        f"topic {job.topic}: {counts.quarantined} records of one batch cannot be read, "
        f"and max_quarantined is {job.options.max_quarantined}: {reasons}"
    )
    raise RefusedError(
        message, "nothing was written; correct the producer of these records, or increase max_quarantined"
    )


def _with_older(
    stack: ExitStack, job: MaterializeJob, decoder: BatchDecoder, topic: Topic, read_range: ReadRange, rows: DataFrame
) -> DataFrame:
    """Return `rows` and, for keys whose newest record is unreadable, the newest readable record and all after it.

    Without these the result would depend on the batches: if a batch ends between the readable and the unreadable
    record, the readable one is written. Reads the range a second time, but only for batches with unreadable records.
    """
    has_key = F.col(KEY_COLUMN).isNotNull()
    unreadable = [row[0] for row in rows.where(F.col("_reason").isNotNull() & has_key).select(KEY_COLUMN).collect()]
    if not unreadable:
        return rows
    versions = newest_of(job, topic, read_range, every_version=True)
    versions = persist(stack, versions.where(F.col("key").cast("string").isin(unreadable)))
    with allow_topic_reads(rows.sparkSession):
        _, schemas = summarize(versions, with_observation=False)
    older = decoder.rows(versions, decoder.writers(schemas, complete=False))
    affected = F.coalesce(F.col(KEY_COLUMN).isin(unreadable), F.lit(False))
    # Records of the first read may have been compacted away before the second.
    versions_of_affected = older.unionByName(rows.where(affected)).dropDuplicates(["_partition", "_offset"])
    return rows.where(~affected).unionByName(_from_newest_readable(versions_of_affected))


def _from_newest_readable(versions: DataFrame) -> DataFrame:
    """Return the newest readable version of each key and the unreadable versions after it."""
    version = F.struct(*VERSION_COLUMNS)
    newest = F.max(F.when(F.col("_reason").isNull(), version)).over(Window.partitionBy(KEY_COLUMN))
    retained = newest.isNull() | (version >= newest)
    return versions.withColumn("_retained", retained).where("_retained").drop("_retained")
