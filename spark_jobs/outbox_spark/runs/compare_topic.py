"""Compare a table with its topic while the topic is written to and compacted.

The scan first reads the topic up to the committed offsets of the table. For each live record that it reads, the table
must have a row of the same or a newer version. A row without a record is not necessarily a difference, because its
record may have been superseded after the committed offsets, and compacted away before the scan reached it. The scan
therefore continues in passes: from the committed offsets to the current end, from there to the new end, and so on. If
compaction removed a record before its pass read it, the same or a later pass contains the superseding record. The scan
is complete when a pass is empty, or when all records of a pass are younger than `min.compaction.lag.ms`. The topic then
contains records only of keys that occurred in a pass.

A row that has the version of the newest record of its key is compared with this record. The target compares the fields,
and row_differences.py compares the columns that describe the state of the row. Only records of rows that differ are
decoded a second time and persisted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from outbox_events.errors import RefusedError
from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.decoding.columns import Column as TableColumn
from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.errors import OverlapError
from outbox_spark.jobs.model import MaterializeJob, Mode, ReadRange, TableProgress
from outbox_spark.kafka.offset_ranges import TopicDescription, resolve_range
from outbox_spark.kafka.ordering import MALFORMED_SEQUENCE, VERSION_COLUMNS
from outbox_spark.kafka.topic_access import Topic
from outbox_spark.runs.batch_decoder import BatchDecoder, WriterSchemas
from outbox_spark.runs.newest_per_key import LATEST_COLUMNS, newest_of, summarize
from outbox_spark.runs.row_differences import (
    DECODED_KINDS,
    KIND,
    ROW,
    DifferenceKind,
    JoinedKind,
    compared_fields,
    count_by_kind,
    count_columns,
    decoded_kind,
    different_state,
    joined_kind,
    uncompared_names,
    with_quarantined,
)
from outbox_spark.session.persisted import allow_topic_reads, forbid_topic_reads, persist
from outbox_spark.sinks import TargetTable
from outbox_spark.sinks.target_table import DIFFERENT_COLUMNS, STORED_VERSION

MAX_PASSES = 20
"""Maximum number of passes. Passes shrink quickly: each reads only what was written during the previous pass."""
_KEY, _ROW_COUNT = "__outbox_key", "__outbox_row_count"


@dataclass(frozen=True)
class Comparison:
    """Result of compare_with_topic(). Its data frames do not change when the table is repaired."""

    committed: TableProgress
    newest: DataFrame
    """Rows of decode() with KIND, ROW and DIFFERENT_COLUMNS: the newest records of missing, stale and different keys,
    and the tombstones of zombies."""
    absent: DataFrame
    """KIND, aggregate_id and METADATA_COLUMNS of the rows that have no record in the topic."""
    columns: Sequence[TableColumn]
    reader_schema: str
    counts: Mapping[DifferenceKind, int]
    examples: Mapping[DifferenceKind, Sequence[str]]
    column_counts: Mapping[str, int]
    """For each column, the number of keys of the kind `different` whose rows differ in that column."""
    uncompared: Sequence[str]
    """Columns of the table that are not fields of the schema, and fields that have no column yet."""
    record_count: int
    pass_count: int
    scan_result: str
    """Text that describes how the scan ended; empty if every row had a record."""


@dataclass
class _Scan:
    """State of the scan, such as the number of passes so far and the offsets up to which it has read the topic."""

    topic: TopicDescription
    clock: Callable[[], datetime]
    """Returns the time of the target."""
    pass_count: int = 0
    is_complete: bool = False
    message: str = ""
    offsets: dict[int, int] = field(default_factory=dict)


def compare_with_topic(
    job: MaterializeJob,
    table: TargetTable,
    topic: Topic,
    registry: SchemaRegistry,
    stack: ExitStack,
    max_examples: int,
    *,
    compare_fields: bool = True,
) -> Comparison:
    """Compare the table with its topic, without changing the table.

    Raises RefusedError if the table does not exist, or if its offsets no longer match the topic.
    """
    committed = table.committed()
    if committed is None:
        raise RefusedError(f"{job}: the table does not exist yet", "run `outbox-materialize`")
    scan = _Scan(topic.describe(), table.current_time)
    records = newest_of(job, topic, committed_range(scan.topic, committed))
    joined = persist(stack, _with_rows(table, records, committed))
    spark = joined.sparkSession
    with allow_topic_reads(spark):
        # This action evaluates all of `joined`, so it also persists the rows without a record.
        summary, schemas = summarize(joined.where(F.col("_offset").isNotNull()), with_observation=True)
    forbid_topic_reads(stack, spark)
    decoder = BatchDecoder(job, table, registry)
    decoder.check_table()
    # All schemas of the scan are requested, because writer_schemas raises an error if the registry knows none of them.
    writer_schemas = decoder.writer_schemas(schemas)
    absent = joined.where(F.col(KIND) == JoinedKind.ABSENT.value)
    if summary.sequence_kinds & MALFORMED_SEQUENCE:
        # A record with a malformed sequence can replace the state of a key in compaction, but does not delete the key.
        unordered = joined.where(F.col(KIND) == JoinedKind.UNORDERED.value).select(KEY_COLUMN)
        absent = absent.join(unordered, KEY_COLUMN, "left_anti")
    absent = _classify_absent(stack, job, scan, topic, committed, absent)
    fields, mode = compared_fields(table, decoder.columns) if compare_fields else [], job.options.mode
    differences = _with_different_fields(stack, table, decoder, writer_schemas, joined, fields, mode)
    partitions_added = committed.partition_epoch > 0
    newest = _decode(decoder, writer_schemas, differences, mode, partitions_added=partitions_added)
    # Checkpoints are used, because Spark evaluates a persisted frame again if a table that it was read from changes.
    newest, absent = newest.localCheckpoint(), absent.localCheckpoint()
    _check_progress_unchanged(job, table, committed)
    others = joined.where(F.col(KIND).isin(DifferenceKind.AHEAD.value, DifferenceKind.DUPLICATE.value))
    keys = [frame.select(KEY_COLUMN, KIND) for frame in (newest, absent, others)]
    counts, examples = count_by_kind(keys[0].unionByName(keys[1]).unionByName(keys[2]), KIND, max_examples)
    return Comparison(
        committed=committed,
        newest=newest,
        absent=absent,
        columns=decoder.columns,
        reader_schema=decoder.reader_schema,
        counts={kind: counts.get(kind, 0) for kind in DifferenceKind},
        examples={kind: examples.get(kind, []) for kind in DifferenceKind},
        column_counts=count_columns(newest.where(F.col(KIND) == DifferenceKind.DIFFERENT.value)),
        uncompared=uncompared_names(table, decoder.columns, fields),
        record_count=summary.record_count,
        pass_count=scan.pass_count,
        scan_result=scan.message,
    )


def committed_range(topic: TopicDescription, committed: TableProgress) -> ReadRange:
    """Return the range from the log start to the committed offsets."""
    read_range = resolve_range(topic, committed)
    start = {partition: topic.start_offsets[partition] for partition in committed.offsets}
    return replace(read_range, start=start, end=dict(committed.offsets), partition_epoch=committed.partition_epoch)


def _with_rows(table: TargetTable, records: DataFrame, committed: TableProgress) -> DataFrame:
    """Join the newest records with the table's rows (ROW). Add KIND and the key of the record or row."""
    states = with_quarantined(table.row_states(), table.quarantined_versions(committed.topic_id))
    rows = states.groupBy(KEY_COLUMN).agg(F.max(ROW).alias(ROW), F.count(F.lit(1)).alias(_ROW_COUNT))
    record_key = F.col("key").cast("string")
    # Records without a valid sequence have no version, so they are not compared with a row.
    ordered_key = F.when(F.col("_sequence").isNotNull(), record_key)
    joined = rows.join(records, F.col(KEY_COLUMN) == ordered_key, how="full_outer")
    joined = joined.withColumn(KEY_COLUMN, F.coalesce(F.col(KEY_COLUMN), record_key))
    return joined.withColumn(KIND, joined_kind(F.col(_ROW_COUNT))).drop(_ROW_COUNT)


def _classify_absent(
    stack: ExitStack, job: MaterializeJob, scan: _Scan, topic: Topic, committed: TableProgress, absent: DataFrame
) -> DataFrame:
    """Read passes until the scan is complete. Return the rows whose keys have no record, and the kind of each row."""
    absent = absent.select(KEY_COLUMN, *[F.col(ROW)[name].alias(name) for name in METADATA_COLUMNS])
    scan.offsets = dict(committed.offsets)
    while not absent.isEmpty() and not scan.is_complete and scan.pass_count < MAX_PASSES:
        scan.topic = topic.describe()
        resolve_range(scan.topic, committed)  # raises RefusedError if the topic has been recreated
        start, end = {**scan.topic.start_offsets, **scan.offsets}, scan.topic.end_offsets
        pass_range = ReadRange(committed.topic, committed.topic_id, committed.partition_epoch, start, end)
        if pass_range.is_empty:
            scan.is_complete, scan.message = True, f"the topic received no records after pass {scan.pass_count}"
            break
        absent = persist(
            stack, absent.join(_keys_of_pass(stack, job, scan, topic, pass_range), on=KEY_COLUMN, how="left_anti")
        )
        scan.offsets = dict(pass_range.end)
    # Retention and DeleteRecords also remove live records, so a key with a record before the log start may exist.
    is_truncated = _offset_of(scan.topic.start_offsets, F.col("_partition")) > F.col("_offset")
    is_zombie = ~F.coalesce(is_truncated, F.lit(True)) & F.lit(scan.is_complete)
    kind = F.when(is_zombie, F.lit(DifferenceKind.ZOMBIE.value)).otherwise(F.lit(DifferenceKind.UNPROVEN.value))
    return absent.withColumn(KIND, kind)


def _keys_of_pass(stack: ExitStack, job: MaterializeJob, scan: _Scan, topic: Topic, pass_range: ReadRange) -> DataFrame:
    """Return the keys of one pass, and set scan.is_complete if this pass completes the scan."""
    keys = newest_of(job, topic, pass_range)
    keys = persist(stack, keys.select(F.col("key").cast("string").alias(KEY_COLUMN), "_timestamp"))
    # The times are numbers, because collect() would return timestamps in the driver's time zone.
    oldest, newest = F.unix_micros(F.min("_timestamp")), F.unix_micros(F.max("_timestamp"))
    counts = keys.agg(F.count(F.lit(1)).alias("keys"), oldest.alias("oldest"), newest.alias("newest"))
    with allow_topic_reads(keys.sparkSession):
        row = counts.collect()[0]
    scan.pass_count += 1
    if row["oldest"] is not None and _age_of_oldest(row, scan.clock()) < scan.topic.min_compaction_lag:
        # The log cleaner does not compact a segment while one of its records is younger than the lag.
        scan.is_complete = True
        scan.message = f"all records of pass {scan.pass_count} are younger than min.compaction.lag.ms"
    else:
        scan.message = f"pass {scan.pass_count} still had {pass_range.offset_count} offsets and {row['keys']} keys"
    return keys.select(KEY_COLUMN)


def _age_of_oldest(timestamps: Row, target_time: datetime) -> timedelta:
    """Return the oldest record's age according to the latest of three clocks, so that a slow clock has no effect."""
    present = max(target_time.timestamp(), datetime.now(UTC).timestamp(), timestamps["newest"] / 1e6)
    return timedelta(seconds=present - timestamps["oldest"] / 1e6)


def _with_different_fields(
    stack: ExitStack,
    table: TargetTable,
    decoder: BatchDecoder,
    writer_schemas: WriterSchemas,
    joined: DataFrame,
    fields: Sequence[TableColumn],
    mode: Mode,
) -> DataFrame:
    """Return the joined rows whose records must be decoded, because the table and the topic may differ.

    DIFFERENT_COLUMNS has the names of the `fields` in which a row differs from the record of its version. It is NULL if
    there is no difference. If `fields` is empty, fields are not compared.
    """
    is_same, is_deleted = F.col(KIND) == JoinedKind.SAME.value, F.col("value").isNull()
    has_different_state = F.size(different_state(mode, is_deleted, F.lit(False))) > 0
    names = F.lit(None).cast("array<string>")
    if fields:
        rows = decoder.rows(joined.where(is_same & ~is_deleted).select(*LATEST_COLUMNS), writer_schemas)
        differences = table.different_fields(stack, rows, fields).withColumnRenamed(KEY_COLUMN, _KEY)
        version = F.struct(*[F.col(ROW)[name].alias(name) for name in VERSION_COLUMNS])
        is_same_row = (F.col(KEY_COLUMN) == F.col(_KEY)) & (version == F.col(STORED_VERSION))
        joined, names = joined.join(differences, is_same_row, "left"), F.col(DIFFERENT_COLUMNS)
    is_different = is_same & (has_different_state | names.isNotNull())
    return joined.withColumn(DIFFERENT_COLUMNS, names).where(F.col(KIND).isin(*DECODED_KINDS) | is_different)


def _decode(
    decoder: BatchDecoder, writer_schemas: WriterSchemas, differences: DataFrame, mode: Mode, *, partitions_added: bool
) -> DataFrame:
    """Return the decoded records of missing, stale, deleted and different keys (see Comparison.newest)."""
    extra_names = (KIND, ROW, DIFFERENT_COLUMNS)
    rows = decoder.rows(differences.select(*LATEST_COLUMNS, *extra_names), writer_schemas, extra_names)
    state = different_state(mode, F.col("__outbox_deleted"), F.col("__outbox_reason").isNotNull())
    names = F.concat(F.coalesce(F.col(DIFFERENT_COLUMNS), F.array().cast("array<string>")), state)
    rows = rows.withColumn(DIFFERENT_COLUMNS, F.when(F.col(ROW).isNotNull(), names))
    return rows.withColumn(KIND, decoded_kind(partitions_added=partitions_added)).where(F.col(KIND).isNotNull())


def _check_progress_unchanged(job: MaterializeJob, table: TargetTable, committed: TableProgress) -> None:
    """Raise OverlapError if another run committed despite the lock. Rows may have been read after that commit."""
    current = table.committed()
    if current is None or current.run != committed.run:
        raise OverlapError(
            f"{job}: another run has committed during the comparison",
            "run the command again when no other run of the table is active",
        )


def _offset_of(offsets: Mapping[int, int], partition: Column) -> Column:
    pairs = [F.lit(value) for pair in sorted(offsets.items()) for value in pair]
    return F.try_element_at(F.create_map(*pairs), partition)
