"""Apply one batch: reduce it to the newest record of each key, decode the records, and write the rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from outbox_events.errors import RefusedError
from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.jobs.model import MaterializeJob, Mode, ReadRange, TableProgress, WriteCounts
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.kafka.record_reader import is_small
from outbox_spark.kafka.topic_access import Topic
from outbox_spark.runs.batch_decoder import BatchDecoder
from outbox_spark.runs.newest_per_key import (
    SUMMARIZED,
    RangeSummary,
    collect_metrics,
    may_skip_records,
    newest_of,
    newest_per_key,
    ordering_of,
    summarize,
    summary_from,
    summary_metrics,
)
from outbox_spark.runs.prepared_rows import PreparedRows
from outbox_spark.runs.retry_quarantined import unknown_schemas_of
from outbox_spark.session.persisted import (
    DecodedCounts,
    allow_topic_reads,
    count_rows,
    counts_from,
    forbid_topic_reads,
    persist,
)
from outbox_spark.session.run_session import active_session
from outbox_spark.session.settings import WITHOUT_ADAPTIVE_EXECUTION, changed_settings
from outbox_spark.session.stage_metrics import label_spark_jobs
from outbox_spark.sinks import Batch, StagedRows, TargetTable


@dataclass(frozen=True)
class AppliedBatch:
    """One committed batch."""

    committed: TableProgress
    record_count: int
    key_count: int
    written: WriteCounts
    newest_timestamp: datetime | None = None
    """Kafka timestamp of the newest record."""


@dataclass(frozen=True)
class _Decoded:
    """Decoded rows of a range, and their counts.

    The rows are persisted. If `staged` is set, the target has them instead, and `rows` is not executed.
    """

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
    advance: Callable[[TableProgress, datetime | None], TableProgress] = lambda progress, _: progress,
    prepared: PreparedRows | None = None,
    quarantined_before: int = 0,
) -> AppliedBatch:
    """Reduce, decode and write one range of the topic.

    `advance` computes the progress to commit from the progress at the end of the range and the newest Kafka timestamp.
    `prepared` keeps the plan of small batches between the calls for a table. `quarantined_before` is the number of
    records that earlier batches of the run have quarantined.
    """
    spark, decoder = active_session(), BatchDecoder(job, table, registry)
    with ExitStack() as stack:
        forbid_topic_reads(stack, spark)
        decoder.check_table()
        decoded = _decode(stack, job, table, decoder, topic, read_range, prepared)
        with allow_topic_reads(spark):
            ordering = ordering_of(job, decoded.summary, committed, lambda: topic.records(read_range))
        _check_quarantine_limit(job, decoded, quarantined_before)
        if decoded.counts.quarantined and job.options.mode is not Mode.HISTORY:
            rows = persist(stack, _with_older(stack, job, decoder, topic, read_range, decoded.rows))
            decoded = replace(decoded, rows=rows, counts=count_rows(rows), staged=None)
            _check_quarantine_limit(job, decoded, quarantined_before)
        label_spark_jobs(spark, job, "write")
        progress = advance(read_range.progress_after(committed, ordering), decoded.summary.newest_timestamp)
        rows, counts, summary = decoded.rows, decoded.counts, decoded.summary
        repeats = committed is not None and read_range.starts_before(committed.offsets)
        if counts.quarantined:
            progress = replace(progress, unknown_schemas=unknown_schemas_of(rows, progress.unknown_schemas))
        batch = Batch(
            rows, counts, decoder.columns, decoder.reader_schema, committed, progress, decoded.staged, repeats
        )
        written = table.write(batch)
        return AppliedBatch(progress, summary.record_count, summary.key_count, written, summary.newest_timestamp)


def _decode(
    stack: ExitStack,
    job: MaterializeJob,
    table: TargetTable,
    decoder: BatchDecoder,
    topic: Topic,
    read_range: ReadRange,
    prepared: PreparedRows | None,
) -> _Decoded:
    """Reduce and decode in one pass with the likely schemas, or in two passes if a record has another schema.

    The rows are used more than once, and a second read of a compacted topic may return different records. The rows are
    therefore persisted, unless the target stages them in the same pass.
    """
    is_history, likely_schemas = job.options.mode is Mode.HISTORY, decoder.likely_schemas()
    spark = active_session()
    label_spark_jobs(spark, job, "reduce to the newest record of each key, decode, stage")
    metrics = summary_metrics(likely_schemas)
    settings: dict[str, str] = {}
    can_repeat = is_small(read_range) and may_skip_records(job)
    if prepared is not None and topic.reader is not None and can_repeat and table.stages_early:
        key = (decoder.reader_schema, likely_schemas, read_range.partition_epoch)
        reduce = partial(newest_per_key, partition_epoch=read_range.partition_epoch, key_format=job.options.key_format)
        rows = prepared.of(
            key, read_range, topic.reader, lambda records: decoder.rows(reduce(records), likely_schemas, SUMMARIZED)
        )
        settings = WITHOUT_ADAPTIVE_EXECUTION
    else:
        newest = newest_of(job, topic, read_range, every_version=is_history)
        rows = decoder.rows(newest, likely_schemas, SUMMARIZED)
    with allow_topic_reads(spark), changed_settings(rows.sparkSession, settings):
        staged = table.stage_early(rows, decoder.columns, metrics)
    schemas_suffice = staged is None or decoder.likely_schemas_suffice(staged.metrics)
    if staged is not None:
        counts = counts_from(staged.metrics)
        if schemas_suffice and not counts.quarantined:
            return _Decoded(rows, summary_from(staged.metrics), counts, staged)
        # The rows of a batch with quarantined records are used again, so they must be persisted. Quarantined records
        # disable early staging, because later batches often contain such records, too. An unexpected schema does not
        # disable early staging, because the next batch expects this schema.
        table.discard(staged, disable=schemas_suffice)
    if schemas_suffice:
        decoded = _persist_decoded(stack, decoder, rows, metrics, with_observation=staged is None)
        if decoded is not None:
            return decoded
    # The log may have changed since the first pass, so its rows are not used. The metrics were already observed.
    newest = persist(stack, newest_of(job, topic, read_range, every_version=is_history))
    with allow_topic_reads(spark):
        summary, schemas = summarize(newest, with_observation=False)
    label_spark_jobs(spark, job, "decode")
    rows = persist(stack, decoder.rows(newest, decoder.writer_schemas(schemas)))
    return _Decoded(rows, summary, count_rows(rows))


def _persist_decoded(
    stack: ExitStack, decoder: BatchDecoder, rows: DataFrame, metrics: list[Column], *, with_observation: bool
) -> _Decoded | None:
    """Persist the rows and return them with their counts; return None if a record has an unexpected schema."""
    with ExitStack() as attempt:
        rows = persist(attempt, rows)
        with allow_topic_reads(rows.sparkSession):
            values = collect_metrics(rows, metrics, with_observation=with_observation)
        if not decoder.likely_schemas_suffice(values):
            return None
        stack.push(attempt.pop_all())
        return _Decoded(rows.drop(*SUMMARIZED), summary_from(values), counts_from(values))


def _check_quarantine_limit(job: MaterializeJob, decoded: _Decoded, quarantined_before: int) -> None:
    """Raise RefusedError if more than max_quarantined records of the run are unreadable."""
    total = quarantined_before + decoded.counts.quarantined
    if total <= job.options.max_quarantined or not decoded.counts.quarantined:
        return
    rows = decoded.rows.where(F.col("__outbox_reason").isNotNull()).groupBy("__outbox_reason").count().collect()
    reasons = ", ".join(
        f"{row['__outbox_reason']} ({row['count']})" for row in sorted(rows, key=lambda row: -row["count"])
    )
    message = (
        f"topic {job.topic}: {total} records of this run cannot be read, "
        f"and max_quarantined is {job.options.max_quarantined}: {reasons}"
    )
    hint = "correct the producer of these records, or increase max_quarantined; this batch was not written"
    raise RefusedError(message, hint)


def _with_older(
    stack: ExitStack, job: MaterializeJob, decoder: BatchDecoder, topic: Topic, read_range: ReadRange, rows: DataFrame
) -> DataFrame:
    """Return `rows` and, for keys whose newest record is unreadable, the newest readable record and all later records.

    Without these records, the result would depend on the boundaries of batches: if a batch ends between the readable
    and the unreadable record, the readable record is written. Only a range with unreadable records is read again.
    """
    has_key = F.col(KEY_COLUMN).isNotNull()
    keys = [row[0] for row in rows.where(F.col("__outbox_reason").isNotNull() & has_key).select(KEY_COLUMN).collect()]
    if not keys:
        return rows
    versions = newest_of(job, topic, read_range, every_version=True)
    # `rows` contains all records with a malformed source_sequence, because they do not supersede one another.
    is_needed = F.col("key").cast("string").isin(keys) & F.col("_sequence").isNotNull()
    versions = persist(stack, versions.where(is_needed))
    with allow_topic_reads(rows.sparkSession):
        _, schemas = summarize(versions, with_observation=False)
    older = decoder.rows(versions, decoder.writer_schemas(schemas, require_known=False))
    is_affected = F.coalesce(F.col(KEY_COLUMN).isin(keys), F.lit(False))
    # The `rows` of the same keys are added, because compaction may have removed their records before the second read.
    versions_of_affected = older.unionByName(rows.where(is_affected)).dropDuplicates(["_partition", "_offset"])
    return rows.where(~is_affected).unionByName(_from_newest_readable(versions_of_affected))


def _from_newest_readable(versions: DataFrame) -> DataFrame:
    """Return the newest readable version of each key, and the unreadable versions that follow it."""
    version = F.struct(*VERSION_COLUMNS)
    newest = F.max(F.when(F.col("__outbox_reason").isNull(), version)).over(Window.partitionBy(KEY_COLUMN))
    is_retained = newest.isNull() | (version >= newest)
    return versions.withColumn("__outbox_retained", is_retained).where("__outbox_retained").drop("__outbox_retained")
