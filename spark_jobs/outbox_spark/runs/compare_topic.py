"""Compares a table with its topic, while the topic is written to and compacted.

According to its offsets, the table has read everything below C. A live record below C is proof: the table must show
it or something newer. A key without a record is no proof. Its record below C may have been replaced by one above C
after the scan began, and compacted away before the scan reached it. The scan therefore continues in passes: from C to
the current end, from there to the end after that, and so on. A record that replaced one of a pass was appended before
that pass was read, so it is in one of the next passes. When a pass is empty, or so young that `min.compaction.lag.ms`
protects all its records, no record can have been missed, and a key that is in no pass is no longer in the topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC
from enum import StrEnum

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.decoding.columns import Column as TableColumn
from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.errors import OverlapError, RefusedError
from outbox_spark.jobs.model import Committed, MaterializeJob, ReadRange
from outbox_spark.kafka.offset_ranges import TopicState, resolve
from outbox_spark.kafka.topic_access import Topic
from outbox_spark.runs.batch_decoder import BatchDecoder
from outbox_spark.runs.missed_tombstones import now
from outbox_spark.runs.newest_per_key import LATEST_COLUMNS, Schemas, newest_of, summarize
from outbox_spark.session.persisted import allow_topic_reads, forbid_topic_reads, persist
from outbox_spark.sinks import TargetTable

MAX_PASSES = 20
"""A pass has the records written while the previous one was read, so passes shrink quickly."""


class Kind(StrEnum):
    """Difference of a key between table and topic."""

    MISSING = "missing"
    """Live in the topic, no row."""
    STALE = "stale"
    """The row is older than the topic's record."""
    ZOMBIE = "zombie"
    """A row whose key is deleted: by a tombstone, or the topic has no record of it any more."""
    UNREADABLE = "unreadable"
    """The newest record cannot be decoded, and the row is older or missing."""
    AHEAD = "ahead"
    """The row is newer than the topic's record: a connector that sends records again has not finished."""
    UNPROVEN = "unproven"
    """The topic has no record of the row's key, but too much was written meanwhile, or the log was truncated."""
    UNSURE = "unsure"
    """Live in the topic, no row; but partitions were added, and the tombstone may be in another partition."""


DIFFERENCES = (Kind.MISSING, Kind.STALE, Kind.ZOMBIE)
"""Kinds that make a table differ; the others are reported only."""
_DELETED, _ABSENT = "deleted", "absent"


@dataclass(frozen=True)
class Comparison:
    """Result of compare(). The frames are persisted until its ExitStack is closed."""

    committed: Committed
    newest: DataFrame
    """Readable newest records of missing and stale keys, and tombstones of zombies: rows of decode(), and `_kind`."""
    absent: DataFrame
    """aggregate_id and METADATA_COLUMNS of rows without a record in the topic, and `_kind`."""
    columns: Sequence[TableColumn]
    reader: str
    counts: Mapping[Kind, int]
    examples: Mapping[Kind, Sequence[str]]
    records: int
    hops: int
    scan: str
    """How the scan ended, as a message."""


@dataclass
class _Scan:
    """State of the scan."""

    state: TopicState
    hops: int = 0
    proven: bool = False
    message: str = ""
    offsets: dict[int, int] = field(default_factory=dict)


def compare(
    job: MaterializeJob,
    table: TargetTable,
    topic: Topic,
    registry: SchemaRegistry,
    stack: ExitStack,
    examples: int = 0,
) -> Comparison:
    """Compare the table with its topic, without writes.

    Raises RefusedError when there is no table, or the topic does not have its offsets.
    """
    committed = table.committed()
    if committed is None:
        raise RefusedError(f"{job}: the table does not exist yet", "run `outbox-materialize`")
    scan = _Scan(topic.describe())
    claimed = claimed_range(scan.state, committed)
    records = persist(stack, newest_of(job, topic, claimed))
    with allow_topic_reads(records.sparkSession):
        summary, schemas = summarize(records, with_observation=True)
    forbid_topic_reads(stack, records.sparkSession)
    labelled = _labelled(stack, table, records)
    grown = committed.partition_epoch > 0
    absent = _prove(stack, job, scan, topic, committed, labelled.where(F.col("_kind") == _ABSENT))
    newest, columns, reader = _decoded(stack, job, table, registry, labelled, schemas, grown=grown)
    _check_progress_unchanged(job, table, committed)
    ahead = labelled.where(F.col("_kind") == Kind.AHEAD.value)
    frames = [frame.select(KEY_COLUMN, "_kind") for frame in (newest, absent, ahead)]
    counts, example_keys = _count(frames[0].unionByName(frames[1]).unionByName(frames[2]), examples)
    return Comparison(
        committed=committed,
        newest=newest,
        absent=absent,
        columns=columns,
        reader=reader,
        counts=counts,
        examples=example_keys,
        records=summary.records,
        hops=scan.hops,
        scan=scan.message,
    )


def claimed_range(state: TopicState, committed: Committed) -> ReadRange:
    """Return the range that the table claims to have read and that the topic still has."""
    read = resolve(state, committed)
    start = {partition: state.earliest[partition] for partition in committed.offsets}
    return replace(read, start=start, end=dict(committed.offsets), partition_epoch=committed.partition_epoch)


def _labelled(stack: ExitStack, table: TargetTable, records: DataFrame) -> DataFrame:
    """Return keys that differ, with `_kind`, the row's version (`row`) and the newest record, in one scan."""
    # Records without a key have no row.
    named = records.where(F.col("key").isNotNull()).withColumn("record_key", F.col("key").cast("string"))
    rows = table.current_versions().select(F.col(KEY_COLUMN), F.struct(*METADATA_COLUMNS).alias("row"))
    joined = rows.join(named, F.col(KEY_COLUMN) == F.col("record_key"), how="full_outer")
    labelled = joined.withColumn("_kind", _kind()).where(F.col("_kind").isNotNull())
    labelled = labelled.withColumn(KEY_COLUMN, F.coalesce(F.col(KEY_COLUMN), F.col("record_key"))).drop("record_key")
    return persist(stack, labelled)


def _kind() -> Column:
    """Return the kind of a joined row; NULL where table and topic agree.

    The partition epoch is not compared: records with equal sequences are copies of one event, and topics without a
    sequence have a single epoch.
    """
    has_record = F.col("record_key").isNotNull()
    sequence, row = F.col("_sequence"), F.col("row._sequence")
    same = sequence == row
    newer = (sequence > row) | (same & (sequence == F.lit("")) & (F.col("_offset") > F.col("row._offset")))
    older = (sequence < row) | (same & (sequence == F.lit("")) & (F.col("_offset") < F.col("row._offset")))
    deleted = F.col("value").isNull()
    return (
        F.when(~has_record, F.lit(_ABSENT))
        .when(F.col("row").isNull() & deleted, F.lit(None))
        .when(F.col("row").isNull(), F.lit(Kind.MISSING.value))
        .when(newer & deleted, F.lit(_DELETED))
        .when(newer, F.lit(Kind.STALE.value))
        .when(older, F.lit(Kind.AHEAD.value))
    )


def _prove(
    stack: ExitStack, job: MaterializeJob, scan: _Scan, topic: Topic, committed: Committed, absent: DataFrame
) -> DataFrame:
    """Read passes until no record can have been missed. Return the absent keys with their kind."""
    absent = absent.select(KEY_COLUMN, "row.*")
    scan.offsets = dict(committed.offsets)
    while not absent.isEmpty() and not scan.proven and scan.hops < MAX_PASSES:
        scan.state = topic.describe()
        resolve(scan.state, committed)  # raises when the topic was recreated meanwhile
        start = {p: scan.offsets.get(p, first) for p, first in scan.state.earliest.items()}
        extension = ReadRange(committed.topic, committed.topic_id, committed.partition_epoch, start, scan.state.latest)
        if extension.is_empty:
            scan.proven, scan.message = True, f"the end of the topic did not change after {scan.hops} passes"
            break
        absent = persist(
            stack, absent.join(_keys_of_pass(stack, job, scan, topic, extension), on=KEY_COLUMN, how="left_anti")
        )
        scan.offsets = dict(extension.end)
    # Retention and DeleteRecords move the log start, compaction does not: records below it are not proof.
    truncated = _by_partition(scan.state.earliest, F.col("_partition")) > F.col("_offset")
    proven = ~F.coalesce(truncated, F.lit(True)) & F.lit(scan.proven)
    kind = F.when(proven, F.lit(Kind.ZOMBIE.value)).otherwise(F.lit(Kind.UNPROVEN.value))
    return absent.withColumn("_kind", kind)


def _keys_of_pass(stack: ExitStack, job: MaterializeJob, scan: _Scan, topic: Topic, extension: ReadRange) -> DataFrame:
    """Return the keys of one pass, and set scan.proven if it was young enough to be the last."""
    keys = newest_of(job, topic, extension)
    keys = persist(stack, keys.select(F.col("key").cast("string").alias(KEY_COLUMN), "_timestamp"))
    # As a number: collect() would return a timestamp in the driver's time zone.
    counts = keys.agg(F.count(F.lit(1)).alias("keys"), F.unix_micros(F.min("_timestamp")).alias("oldest"))
    with allow_topic_reads(keys.sparkSession):
        row = counts.collect()[0]
    scan.hops += 1
    lag = scan.state.min_compaction_lag.total_seconds()
    if row["oldest"] is not None and now().astimezone(UTC).timestamp() - row["oldest"] / 1e6 < lag:
        # The log cleaner does not compact a segment while one of its records is younger than the lag.
        scan.proven = True
        scan.message = f"all records of pass {scan.hops} are younger than min.compaction.lag.ms"
    else:
        offsets = sum(end - extension.start[partition] for partition, end in extension.end.items())
        scan.message = f"pass {scan.hops} still had {offsets} offsets, {row['keys']} keys"
    return keys.select(KEY_COLUMN)


def _decoded(
    stack: ExitStack,
    job: MaterializeJob,
    table: TargetTable,
    registry: SchemaRegistry,
    labelled: DataFrame,
    schemas: Schemas,
    *,
    grown: bool,
) -> tuple[DataFrame, Sequence[TableColumn], str]:
    """Return the newest records of missing, stale and deleted keys, the columns and the reader schema."""
    differing = labelled.where(F.col("_kind").isin(Kind.MISSING.value, Kind.STALE.value, _DELETED))
    # With the schema ids of the whole scan: the registry may know none of a single foreign record.
    decoder = BatchDecoder(job, table, registry)
    decoder.check_table(labelled.sparkSession)
    rows = decoder.rows(differing.select(*LATEST_COLUMNS), decoder.writers(schemas))
    kinds = differing.select(F.col("_partition").alias("p"), F.col("_offset").alias("o"), "_kind")
    position = (F.col("_partition") == F.col("p")) & (F.col("_offset") == F.col("o"))
    rows = rows.join(kinds, position).drop("p", "o")
    missing = F.lit((Kind.UNSURE if grown else Kind.MISSING).value)
    kind = (
        F.when(F.col("_reason").isNotNull(), F.lit(Kind.UNREADABLE.value))
        .when(F.col("_kind") == _DELETED, F.lit(Kind.ZOMBIE.value))
        .when(F.col("_kind") == Kind.MISSING.value, missing)
        .otherwise(F.col("_kind"))
    )
    return persist(stack, rows.withColumn("_kind", kind)), decoder.columns, decoder.reader


def _check_progress_unchanged(job: MaterializeJob, table: TargetTable, committed: Committed) -> None:
    """Raise OverlapError if the progress changed: without a lock the rows may belong to another one."""
    again = table.committed()
    if again is None or again.run != committed.run:
        raise OverlapError(
            f"{job}: another run has committed during the comparison",
            "run the command again when no other run is active",
        )


def _count(kinds: DataFrame, examples: int) -> tuple[dict[Kind, int], dict[Kind, list[str]]]:
    """Return the number of keys of each kind, and the first of them."""
    within = Window.partitionBy("_kind")
    rank = F.row_number().over(within.orderBy(F.col(KEY_COLUMN).asc_nulls_last()))
    count = F.count(F.lit(1)).over(within)
    # At least one row of each kind, for its count.
    listed = kinds.select("*", rank.alias("rank"), count.alias("count")).where(F.col("rank") <= max(examples, 1))
    counts = dict.fromkeys(Kind, 0)
    example_keys: dict[Kind, list[str]] = {kind: [] for kind in Kind}
    for row in sorted(listed.collect(), key=lambda row: int(row["rank"])):
        kind = Kind(row["_kind"])
        counts[kind] = int(row["count"])
        if examples and row[KEY_COLUMN] is not None:
            example_keys[kind].append(row[KEY_COLUMN])
    return counts, example_keys


def _by_partition(offsets: Mapping[int, int], partition: Column) -> Column:
    pairs = [F.lit(value) for pair in sorted(offsets.items()) for value in pair]
    return F.try_element_at(F.create_map(*pairs), partition)
