"""One batch: reduce, decode, set apart what cannot be read, write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.columns import KEY_COLUMN, Column, columns_of
from outbox_spark.compatible import check_writer
from outbox_spark.decode import decode, types_of
from outbox_spark.errors import RefusedError
from outbox_spark.keeping import Counts, counted, keep_to_kept, kept, reading
from outbox_spark.latest import Summary, newest_of, newest_per_key, ordering_of, summarize
from outbox_spark.model import Committed, Format, MaterializeJob, Mode, ReadRange, Written
from outbox_spark.newest_records import extracted
from outbox_spark.order import VERSION_COLUMNS
from outbox_spark.registry import SchemaRegistry
from outbox_spark.sinks import Batch, TargetTable
from outbox_spark.spark_work import label
from outbox_spark.topics import Topic

_NAMED_IDS = 5


@dataclass(frozen=True)
class Applied:
    """One batch that is in the table now."""

    committed: Committed
    records: int
    keys: int
    written: Written
    newest: datetime | None = None
    """Kafka timestamp of the newest record."""


class _Run:
    """What decoding needs: the schema that decides the columns, and the writers' as they turn up."""

    def __init__(self, job: MaterializeJob, table: TargetTable, registry: SchemaRegistry) -> None:
        subject = f"{job.topic}-value"
        self._job, self._table, self._registry = job, table, registry
        pinned = job.options.schema_version
        self.reader = registry.latest(subject) if pinned is None else registry.version(subject, pinned)
        self.columns = columns_of(self.reader, subject)

    def decoded(self, latest: DataFrame, summary: Summary, *, whole: bool = True) -> DataFrame:
        """Rows of what newest_per_key left. `whole` unless it is of a few keys, whose ids may all be unknown."""
        writers: dict[int | str, str] = {}
        value_format = self._job.options.value_format
        if value_format is Format.AVRO:
            writers = _writers(self._job, summary, self.reader, self._registry, whole=whole)
        return decode(latest, self.columns, self.reader, writers, self._table.limit, value_format)

    def newest(self, topic: Topic, read: ReadRange, *, every_version: bool) -> DataFrame:
        """The newest record of each key, or of each version of each key."""
        if not every_version:
            return newest_of(self._job, topic, read)
        records, key_format = extracted(topic.records(read)), self._job.options.key_format
        return newest_per_key(records, read.partition_epoch, every_version=True, key_format=key_format)


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
    run = _Run(job, table, registry)
    every = job.options.mode is Mode.HISTORY
    with ExitStack() as stack:
        # Kept, because it is read more than once and a compacted topic may answer differently the second time.
        latest = kept(stack, run.newest(topic, read, every_version=every))
        spark = latest.sparkSession
        table.check(run.columns, types_of(spark, run.columns, run.reader))
        label(spark, job, "reduce to the newest record of each key")
        with reading(spark):
            summary = summarize(latest)
            ordering = ordering_of(job, summary, committed, lambda: topic.records(read))
        keep_to_kept(stack, spark)
        label(spark, job, "decode")
        rows = kept(stack, run.decoded(latest, summary))
        counts = _counted(job, rows)
        if counts.quarantined and not every:
            rows = kept(stack, _with_older(stack, run, topic, read, rows))
            counts = _counted(job, rows)
        label(spark, job, "write")
        new = progress(read.committed(committed, ordering))
        batch = Batch(rows, counts, run.columns, run.reader, committed, new)
        return Applied(new, summary.records, summary.keys, table.write(batch), summary.newest)


def _counted(job: MaterializeJob, rows: DataFrame) -> Counts:
    """Raises RefusedError when there are more rows for quarantine than the table may have at once."""
    counts = counted(rows)
    if counts.quarantined > job.options.max_quarantined:
        found = rows.where(F.col("_reason").isNotNull()).groupBy("_reason").count().collect()
        reasons = ", ".join(
            f"{row['_reason']} ({row['count']})" for row in sorted(found, key=lambda row: -row["count"])
        )
        message = (
            f"topic {job.topic}: {counts.quarantined} records of one batch cannot be read, "
            f"and max_quarantined is {job.options.max_quarantined}: {reasons}"
        )
        raise RefusedError(message, "nothing was written; find out who produced them, or raise max_quarantined")
    return counts


def _with_older(stack: ExitStack, run: _Run, topic: Topic, read: ReadRange, rows: DataFrame) -> DataFrame:
    """`rows`, and for every key whose newest record cannot be read the newest that can, and what is between.

    Without it the row would depend on where batches are cut: a record that was good enough to be shown by a run
    that ended before the unreadable one would be skipped by a run that ended after it. Costs a second read of the
    range, in batches with poison only.
    """
    named = F.col(KEY_COLUMN).isNotNull()
    bad = [row[0] for row in rows.where(F.col("_reason").isNotNull() & named).select(KEY_COLUMN).collect()]
    if not bad:
        return rows
    versions = run.newest(topic, read, every_version=True)
    theirs = kept(stack, versions.where(F.col("key").cast("string").isin(bad)))
    with reading(rows.sparkSession):
        summary = summarize(theirs, observed=False)
    older = run.decoded(theirs, summary, whole=False)
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


def _writers(
    job: MaterializeJob, summary: Summary, reader: str, registry: SchemaRegistry, *, whole: bool
) -> dict[int | str, str]:
    """The schemas behind the ids and GUIDs that occur, without those that the registry does not know.

    Of a `whole` batch it must know one.
    """
    found: dict[int | str, str] = {}
    unknown: list[int | str] = []
    keys: list[int | str] = [*sorted(summary.schema_ids), *sorted(summary.schema_guids)]
    for key in keys:
        schema = registry.by_id(key) if isinstance(key, int) else registry.by_guid(key)
        if schema is None:
            unknown.append(key)
        else:
            found[key] = schema
        if len(unknown) > job.options.max_quarantined:
            break  # each stands for at least one record that cannot be read: the run will be refused
    if whole and keys and len(unknown) == len(keys):
        # A few unknown ids are poison; nothing but unknown ids is the wrong registry, or one restored from before.
        named = ", ".join(str(key) for key in unknown[:_NAMED_IDS]) + (", ..." if len(unknown) > _NAMED_IDS else "")
        message = f"topic {job.topic}: the registry knows none of the schema ids that its records carry: {named}"
        raise RefusedError(message, "check registry.url, and whether the registry was restored from a backup")
    for key, schema in found.items():
        check_writer(schema, reader, f"schema {key} of topic {job.topic}")
    return found


def decode_newest(
    job: MaterializeJob, table: TargetTable, latest: DataFrame, summary: Summary, registry: SchemaRegistry
) -> tuple[DataFrame, Sequence[Column], str]:
    """Rows of what newest_per_key left, the columns and the reader schema: what a Batch takes. Writes nothing.

    `latest` may be a part of what `summary` speaks of.
    """
    run = _Run(job, table, registry)
    table.check(run.columns, types_of(latest.sparkSession, run.columns, run.reader))
    return run.decoded(latest, summary), run.columns, run.reader
