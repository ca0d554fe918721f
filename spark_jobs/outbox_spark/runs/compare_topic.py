"""Compares a table with its topic, while the topic is written to and compacted.

The scan first reads the topic up to the committed offsets of the table. For each live record that it reads, the table
must have a row of the same or a newer version. A row without a record is not necessarily a difference: the record may
have been superseded after the committed offsets, and compacted away before the scan reached it. The scan
therefore continues in passes: from the committed offsets to the current end, from there to the new end, and so on. If
compaction removed a record before its pass read it, the same or a later pass contains the superseding record. When a
pass is empty, or all its records are younger than `min.compaction.lag.ms`, the scan is complete: a key that is in no
pass is no longer in the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.decoding.columns import Column as TableColumn
from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.errors import OverlapError, RefusedError
from outbox_spark.jobs.model import MaterializeJob, ReadRange, TableProgress
from outbox_spark.kafka.offset_ranges import TopicDescription, resolve_range
from outbox_spark.kafka.ordering import MALFORMED_SEQUENCE
from outbox_spark.kafka.topic_access import Topic
from outbox_spark.runs.batch_decoder import BatchDecoder
from outbox_spark.runs.newest_per_key import LATEST_COLUMNS, SchemaReferences, newest_of, summarize
from outbox_spark.session.persisted import allow_topic_reads, forbid_topic_reads, persist
from outbox_spark.sinks import TargetTable

MAX_PASSES = 20
"""Maximum number of passes. Passes shrink quickly: each reads the records that were written during the previous one."""


class DifferenceKind(StrEnum):
    """Kind of the difference of a key between table and topic."""

    MISSING = "missing"
    """The topic has a live record of the key, but there is no row."""
    STALE = "stale"
    """The row is older than the topic's record."""
    ZOMBIE = "zombie"
    """The key of the row has a tombstone in the topic, or no record any more."""
    UNREADABLE = "unreadable"
    """The newest record cannot be decoded, and the row is older or missing."""
    AHEAD = "ahead"
    """The row is newer than the topic's record, for example while a connector sends records again."""
    UNPROVEN = "unproven"
    """The topic has no record of the row's key, but the scan was not completed, or the log was truncated."""
    UNSURE = "unsure"
    """Like MISSING, but partitions were added to the topic, and another partition may have a tombstone."""


DIFFERENCES = (DifferenceKind.MISSING, DifferenceKind.STALE, DifferenceKind.ZOMBIE)
"""Kinds that count as differences; the others are only reported."""
_DELETED, _ABSENT = "deleted", "absent"


@dataclass(frozen=True)
class Comparison:
    """Result of compare_with_topic(). The frames are persisted until its ExitStack is closed."""

    committed: TableProgress
    newest: DataFrame
    """Rows of decode() with `__outbox_kind`: the newest records of missing and stale keys, tombstones of zombies."""
    absent: DataFrame
    """aggregate_id and METADATA_COLUMNS of rows without a record in the topic, and `__outbox_kind`."""
    columns: Sequence[TableColumn]
    reader_schema: str
    counts: Mapping[DifferenceKind, int]
    examples: Mapping[DifferenceKind, Sequence[str]]
    record_count: int
    pass_count: int
    scan_result: str
    """How the scan ended, as text; empty if every row had a record."""


@dataclass
class _Scan:
    """State of the scan: the number of passes so far, and the offsets up to which they have read the topic."""

    topic: TopicDescription
    clock: Callable[[], datetime]
    """Returns the time of the target."""
    pass_count: int = 0
    is_complete: bool = False
    message: str = ""
    offsets: dict[int, int] = field(default_factory=dict)


def compare_with_topic(
    job: MaterializeJob, table: TargetTable, topic: Topic, registry: SchemaRegistry, stack: ExitStack, max_examples: int
) -> Comparison:
    """Compare the table with its topic, without writes.

    Raises RefusedError when the table does not exist, or the topic no longer has the table's offsets.
    """
    committed = table.committed()
    if committed is None:
        raise RefusedError(f"{job}: the table does not exist yet", "run `outbox-materialize`")
    scan = _Scan(topic.describe(), table.current_time)
    scan_range = committed_range(scan.topic, committed)
    records = persist(stack, newest_of(job, topic, scan_range))
    with allow_topic_reads(records.sparkSession):
        summary, schemas = summarize(records, with_observation=True)
    forbid_topic_reads(stack, records.sparkSession)
    differences = _different_keys(stack, table, records)
    partitions_added = committed.partition_epoch > 0
    absent = differences.where(F.col("__outbox_kind") == _ABSENT)
    if summary.sequence_kinds & MALFORMED_SEQUENCE:
        # Compaction removes the state of a key whose latest record has a malformed sequence: it proves no deletion.
        unordered = records.where(F.col("_sequence").isNull()).select(F.col("key").cast("string").alias(KEY_COLUMN))
        absent = absent.join(unordered, KEY_COLUMN, "left_anti")
    absent = _classify_absent(stack, job, scan, topic, committed, absent)
    newest, columns, reader_schema = _decode_differences(
        stack, job, table, registry, differences, schemas, partitions_added=partitions_added
    )
    _check_progress_unchanged(job, table, committed)
    ahead = differences.where(F.col("__outbox_kind") == DifferenceKind.AHEAD.value)
    frames = [frame.select(KEY_COLUMN, "__outbox_kind") for frame in (newest, absent, ahead)]
    counts, example_keys = _count(frames[0].unionByName(frames[1]).unionByName(frames[2]), max_examples)
    return Comparison(
        committed=committed,
        newest=newest,
        absent=absent,
        columns=columns,
        reader_schema=reader_schema,
        counts=counts,
        examples=example_keys,
        record_count=summary.record_count,
        pass_count=scan.pass_count,
        scan_result=scan.message,
    )


def committed_range(topic: TopicDescription, committed: TableProgress) -> ReadRange:
    """Return the range from the log start to the committed offsets."""
    read_range = resolve_range(topic, committed)
    start = {partition: topic.start_offsets[partition] for partition in committed.offsets}
    return replace(read_range, start=start, end=dict(committed.offsets), partition_epoch=committed.partition_epoch)


def _different_keys(stack: ExitStack, table: TargetTable, records: DataFrame) -> DataFrame:
    """Return keys that differ, with `__outbox_kind`, the row's metadata (`row`) and the newest record, by one join."""
    # Records without a key have no row, and records without a valid sequence no version.
    keyed = records.where(F.col("key").isNotNull() & F.col("_sequence").isNotNull()).withColumn(
        "record_key", F.col("key").cast("string")
    )
    rows = table.current_versions().select(F.col(KEY_COLUMN), F.struct(*METADATA_COLUMNS).alias("row"))
    joined = rows.join(keyed, F.col(KEY_COLUMN) == F.col("record_key"), how="full_outer")
    differences = joined.withColumn("__outbox_kind", _kind()).where(F.col("__outbox_kind").isNotNull())
    differences = differences.withColumn(KEY_COLUMN, F.coalesce(F.col(KEY_COLUMN), F.col("record_key"))).drop(
        "record_key"
    )
    return persist(stack, differences)


def _kind() -> Column:
    """Return the kind of difference of a joined row; NULL if table and topic agree.

    The partition epoch is not compared: records with equal sequences are copies of one event, and topics without a
    sequence have a single epoch.
    """
    has_record = F.col("record_key").isNotNull()
    sequence, row_sequence = F.col("_sequence"), F.col("row._sequence")
    has_no_sequence = (sequence == row_sequence) & (sequence == F.lit(""))
    is_newer = (sequence > row_sequence) | (has_no_sequence & (F.col("_offset") > F.col("row._offset")))
    is_older = (sequence < row_sequence) | (has_no_sequence & (F.col("_offset") < F.col("row._offset")))
    is_deleted = F.col("value").isNull()
    return (
        F.when(~has_record, F.lit(_ABSENT))
        .when(F.col("row").isNull() & is_deleted, F.lit(None))
        .when(F.col("row").isNull(), F.lit(DifferenceKind.MISSING.value))
        .when(is_newer & is_deleted, F.lit(_DELETED))
        .when(is_newer, F.lit(DifferenceKind.STALE.value))
        .when(is_older, F.lit(DifferenceKind.AHEAD.value))
    )


def _classify_absent(
    stack: ExitStack, job: MaterializeJob, scan: _Scan, topic: Topic, committed: TableProgress, absent: DataFrame
) -> DataFrame:
    """Read passes until the scan is complete. Return the rows whose keys have no record, with their kind."""
    absent = absent.select(KEY_COLUMN, "row.*")
    scan.offsets = dict(committed.offsets)
    while not absent.isEmpty() and not scan.is_complete and scan.pass_count < MAX_PASSES:
        scan.topic = topic.describe()
        resolve_range(scan.topic, committed)  # raises RefusedError if the topic was recreated since
        start, end = {**scan.topic.start_offsets, **scan.offsets}, scan.topic.end_offsets
        pass_range = ReadRange(committed.topic, committed.topic_id, committed.partition_epoch, start, end)
        if pass_range.is_empty:
            scan.is_complete, scan.message = True, f"the end of the topic did not change after {scan.pass_count} passes"
            break
        absent = persist(
            stack, absent.join(_keys_of_pass(stack, job, scan, topic, pass_range), on=KEY_COLUMN, how="left_anti")
        )
        scan.offsets = dict(pass_range.end)
    # Retention and DeleteRecords also remove live records, so the key of a row below the log start may still exist.
    is_truncated = _offset_of(scan.topic.start_offsets, F.col("_partition")) > F.col("_offset")
    is_zombie = ~F.coalesce(is_truncated, F.lit(True)) & F.lit(scan.is_complete)
    kind = F.when(is_zombie, F.lit(DifferenceKind.ZOMBIE.value)).otherwise(F.lit(DifferenceKind.UNPROVEN.value))
    return absent.withColumn("__outbox_kind", kind)


def _keys_of_pass(stack: ExitStack, job: MaterializeJob, scan: _Scan, topic: Topic, pass_range: ReadRange) -> DataFrame:
    """Return the keys of one pass, and set scan.is_complete if no later pass is necessary."""
    keys = newest_of(job, topic, pass_range)
    keys = persist(stack, keys.select(F.col("key").cast("string").alias(KEY_COLUMN), "_timestamp"))
    # The time is a number, because collect() would return a timestamp in the driver's time zone.
    oldest, newest = F.unix_micros(F.min("_timestamp")), F.unix_micros(F.max("_timestamp"))
    counts = keys.agg(F.count(F.lit(1)).alias("keys"), oldest.alias("oldest"), newest.alias("newest"))
    with allow_topic_reads(keys.sparkSession):
        row = counts.collect()[0]
    scan.pass_count += 1
    if row["keys"] and _age_of_oldest(row, scan.clock()) < scan.topic.min_compaction_lag:
        # The log cleaner does not compact a segment while one of its records is younger than the lag.
        scan.is_complete = True
        scan.message = f"all records of pass {scan.pass_count} are younger than min.compaction.lag.ms"
    else:
        scan.message = f"pass {scan.pass_count} still had {pass_range.offset_count} offsets, {row['keys']} keys"
    return keys.select(KEY_COLUMN)


def _age_of_oldest(timestamps: Row, target_time: datetime) -> timedelta:
    """Return the age of the oldest record, by the latest of three clocks: that of a slow clock would be too low."""
    present = max(target_time.timestamp(), datetime.now(UTC).timestamp(), timestamps["newest"] / 1e6)
    return timedelta(seconds=present - timestamps["oldest"] / 1e6)


def _decode_differences(
    stack: ExitStack,
    job: MaterializeJob,
    table: TargetTable,
    registry: SchemaRegistry,
    differences: DataFrame,
    schemas: SchemaReferences,
    *,
    partitions_added: bool,
) -> tuple[DataFrame, Sequence[TableColumn], str]:
    """Decode the newest records of missing, stale and deleted keys. Return rows, columns and reader schema."""
    to_decode = differences.where(
        F.col("__outbox_kind").isin(DifferenceKind.MISSING.value, DifferenceKind.STALE.value, _DELETED)
    )
    # All schemas of the scan are requested, because writer_schemas raises an error if the registry knows none of them.
    decoder = BatchDecoder(job, table, registry)
    decoder.check_table(differences.sparkSession)
    latest = to_decode.select(*LATEST_COLUMNS, "__outbox_kind")
    rows = decoder.rows(latest, decoder.writer_schemas(schemas), ["__outbox_kind"])
    missing_kind = F.lit((DifferenceKind.UNSURE if partitions_added else DifferenceKind.MISSING).value)
    kind = (
        F.when(F.col("__outbox_reason").isNotNull(), F.lit(DifferenceKind.UNREADABLE.value))
        .when(F.col("__outbox_kind") == _DELETED, F.lit(DifferenceKind.ZOMBIE.value))
        .when(F.col("__outbox_kind") == DifferenceKind.MISSING.value, missing_kind)
        .otherwise(F.col("__outbox_kind"))
    )
    return persist(stack, rows.withColumn("__outbox_kind", kind)), decoder.columns, decoder.reader_schema


def _check_progress_unchanged(job: MaterializeJob, table: TargetTable, committed: TableProgress) -> None:
    """Raise OverlapError if another run has committed despite the lock: rows may have been read after its commit."""
    current = table.committed()
    if current is None or current.run != committed.run:
        raise OverlapError(
            f"{job}: another run has committed during the comparison",
            "run the command again when no other run of the table is active",
        )


def _count(kinds: DataFrame, max_examples: int) -> tuple[dict[DifferenceKind, int], dict[DifferenceKind, list[str]]]:
    """Return the number of keys of each kind, and at most `max_examples` keys of each kind."""
    window = Window.partitionBy("__outbox_kind")
    rank = F.row_number().over(window.orderBy(F.col(KEY_COLUMN).asc_nulls_last()))
    count = F.count(F.lit(1)).over(window)
    # At least one row of each kind is selected, because each row contains the count of its kind.
    listed = kinds.select("*", rank.alias("rank"), count.alias("count")).where(F.col("rank") <= max(max_examples, 1))
    counts = dict.fromkeys(DifferenceKind, 0)
    example_keys: dict[DifferenceKind, list[str]] = {kind: [] for kind in DifferenceKind}
    for row in sorted(listed.collect(), key=lambda row: int(row["rank"])):
        kind = DifferenceKind(row["__outbox_kind"])
        counts[kind] = int(row["count"])
        if max_examples and row[KEY_COLUMN] is not None:
            example_keys[kind].append(row[KEY_COLUMN])
    return counts, example_keys


def _offset_of(offsets: Mapping[int, int], partition: Column) -> Column:
    pairs = [F.lit(value) for pair in sorted(offsets.items()) for value in pair]
    return F.try_element_at(F.create_map(*pairs), partition)
