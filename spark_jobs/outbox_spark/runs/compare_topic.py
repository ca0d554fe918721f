"""Compares a table with its topic, while others write to the topic and compaction removes from it.

What the table claims to have read is everything below its offsets C. A live record below C is proof: the table must
show it, or something newer. A key that is not there is no proof yet. Its record below C may have been replaced by one
above C after the scan began, and compacted away before the scan came by. So the scan goes on: from C to the end as
it then is, from there to the end as it is after that, and so on. What replaced a record of one hop was appended
before that hop was read, so it lies in the next hops. When a hop is empty, or so young that `min.compaction.lag.ms`
protects all of it, nothing can have slipped through, and a key that is in no hop is in the topic no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC
from enum import StrEnum

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.batch_decoder import decode_newest
from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.decoding.columns import Column as TableColumn
from outbox_spark.decoding.schema_registry import SchemaRegistry
from outbox_spark.errors import OverlapError, RefusedError
from outbox_spark.jobs.model import Committed, MaterializeJob, ReadRange
from outbox_spark.kafka.ranges import TopicState, resolve
from outbox_spark.kafka.topic import Topic
from outbox_spark.runs.newest_per_key import LATEST_COLUMNS, Schemas, newest_of, summarize
from outbox_spark.runs.retention import now
from outbox_spark.session.persisted import keep_to_kept, kept, reading
from outbox_spark.sinks import TargetTable

MAX_HOPS = 20
"""Each takes about as long as what was written during the one before takes to read: they shrink fast."""


class Kind(StrEnum):
    """How a key can differ between table and topic."""

    MISSING = "missing"
    """Live in the topic, no row."""
    STALE = "stale"
    """The row is older than the topic's record."""
    ZOMBIE = "zombie"
    """A row whose key is deleted: by a tombstone, or nothing of it is left in the topic."""
    UNREADABLE = "unreadable"
    """The newest record cannot be decoded, and the row is older or not there."""
    AHEAD = "ahead"
    """The row is newer than what the topic holds: a connector that sends records again is not done yet."""
    UNPROVEN = "unproven"
    """Nothing was found of the row's key, but too much was written meanwhile, or the log was cut: no proof."""
    UNSURE = "unsure"
    """Live in the topic, no row; but the topic grew, and the tombstone may have been in another partition."""


DIFFERENCES = (Kind.MISSING, Kind.STALE, Kind.ZOMBIE)
"""What is wrong with a table; the other kinds are told, and need nobody."""
_DELETED, _ABSENT = "deleted", "absent"


@dataclass(frozen=True)
class Found:
    """What compare() found. The frames are kept until its ExitStack ends."""

    committed: Committed
    newest: DataFrame
    """Readable newest records of keys that are missing or stale, and tombstones of zombies: rows as decode() yields
    them, and `_kind`."""
    absent: DataFrame
    """aggregate_id and METADATA_COLUMNS of rows that nothing in the topic stands for any more, and `_kind`."""
    columns: Sequence[TableColumn]
    reader: str
    counts: Mapping[Kind, int]
    examples: Mapping[Kind, Sequence[str]]
    records: int
    hops: int
    words: str
    """How the scan ended, for people."""


@dataclass
class _Scan:
    """Where the scan is, and how it ended."""

    state: TopicState
    hops: int = 0
    proven: bool = False
    words: str = ""
    position: dict[int, int] = field(default_factory=dict)


def compare(
    job: MaterializeJob,
    table: TargetTable,
    topic: Topic,
    registry: SchemaRegistry,
    stack: ExitStack,
    examples: int = 0,
) -> Found:
    """Compare; changes nothing. Raises RefusedError when there is no table, or its offsets do not fit the topic."""
    committed = table.committed()
    if committed is None:
        raise RefusedError(f"{job}: there is no table yet", "outbox-materialize makes it")
    scan = _Scan(topic.describe())
    claimed = claimed_range(scan.state, committed)
    latest = kept(stack, newest_of(job, topic, claimed))
    with reading(latest.sparkSession):
        summary, schemas = summarize(latest, observed=True)
    keep_to_kept(stack, latest.sparkSession)
    labelled = _labelled(stack, table, latest)
    grown = committed.partition_epoch > 0
    absent = _prove(stack, job, scan, topic, committed, labelled.where(F.col("_kind") == _ABSENT))
    newest, columns, reader = _decoded(stack, job, table, registry, labelled, schemas, grown=grown)
    _check_unmoved(job, table, committed)
    ahead = labelled.where(F.col("_kind") == Kind.AHEAD.value)
    every = [frame.select(KEY_COLUMN, "_kind") for frame in (newest, absent, ahead)]
    kinds = every[0].unionByName(every[1]).unionByName(every[2])
    counts, shown = _counted(kinds, examples)
    return Found(
        committed=committed,
        newest=newest,
        absent=absent,
        columns=columns,
        reader=reader,
        counts=counts,
        examples=shown,
        records=summary.records,
        hops=scan.hops,
        words=scan.words,
    )


def claimed_range(state: TopicState, committed: Committed) -> ReadRange:
    """What the table claims to have read, as far as it is still there."""
    read = resolve(state, committed)
    start = {partition: state.earliest[partition] for partition in committed.offsets}
    return replace(read, start=start, end=dict(committed.offsets), partition_epoch=committed.partition_epoch)


def _labelled(stack: ExitStack, table: TargetTable, latest: DataFrame) -> DataFrame:
    """Keys that differ, with `_kind`, the row's version (`row`) and the newest record. One scan of both sides."""
    # Records without a key stand for no row.
    named = latest.where(F.col("key").isNotNull()).withColumn("text", F.col("key").cast("string"))
    rows = table.current_versions().select(F.col(KEY_COLUMN), F.struct(*METADATA_COLUMNS).alias("row"))
    both = rows.join(named, F.col(KEY_COLUMN) == F.col("text"), how="full_outer")
    labelled = both.withColumn("_kind", _kind()).where(F.col("_kind").isNotNull())
    labelled = labelled.withColumn(KEY_COLUMN, F.coalesce(F.col(KEY_COLUMN), F.col("text"))).drop("text")
    return kept(stack, labelled)


def _kind() -> Column:
    """NULL where table and topic agree.

    The partition epoch is left out: it says when a record was read, and is not known of one that is read now. Of two
    records with a sequence the epoch matters for copies of one event only; without a sequence there is one epoch.
    """
    text = F.col("text").isNotNull()
    sequence, row = F.col("_sequence"), F.col("row._sequence")
    same = sequence == row
    newer = (sequence > row) | (same & (sequence == F.lit("")) & (F.col("_offset") > F.col("row._offset")))
    older = (sequence < row) | (same & (sequence == F.lit("")) & (F.col("_offset") < F.col("row._offset")))
    gone = F.col("value").isNull()
    return (
        F.when(~text, F.lit(_ABSENT))
        .when(F.col("row").isNull() & gone, F.lit(None))
        .when(F.col("row").isNull(), F.lit(Kind.MISSING.value))
        .when(newer & gone, F.lit(_DELETED))
        .when(newer, F.lit(Kind.STALE.value))
        .when(older, F.lit(Kind.AHEAD.value))
    )


def _prove(
    stack: ExitStack, job: MaterializeJob, scan: _Scan, topic: Topic, committed: Committed, absent: DataFrame
) -> DataFrame:
    """Hop to the end until no key can have slipped through. Yields what is absent with its kind."""
    absent = absent.select(KEY_COLUMN, "row.*")
    scan.position = dict(committed.offsets)
    while not absent.isEmpty() and not scan.proven and scan.hops < MAX_HOPS:
        scan.state = topic.describe()
        resolve(scan.state, committed)  # raises when the topic was recreated meanwhile
        start = {p: scan.position.get(p, first) for p, first in scan.state.earliest.items()}
        hop = ReadRange(committed.topic, committed.topic_id, committed.partition_epoch, start, scan.state.latest)
        if hop.is_empty:
            scan.proven, scan.words = True, f"the end of the topic stood still after {scan.hops} hops"
            break
        absent = kept(stack, absent.join(_seen(stack, job, scan, topic, hop), on=KEY_COLUMN, how="left_anti"))
        scan.position = dict(hop.end)
    # Retention and DeleteRecords move the log start, compaction does not: below it records are gone for any reason.
    cut = _by_partition(scan.state.earliest, F.col("_partition")) > F.col("_offset")
    proven = ~F.coalesce(cut, F.lit(True)) & F.lit(scan.proven)
    kind = F.when(proven, F.lit(Kind.ZOMBIE.value)).otherwise(F.lit(Kind.UNPROVEN.value))
    return absent.withColumn("_kind", kind)


def _seen(stack: ExitStack, job: MaterializeJob, scan: _Scan, topic: Topic, hop: ReadRange) -> DataFrame:
    """Keys of one hop; decides whether it was young enough to be the last."""
    keys = newest_of(job, topic, hop)
    keys = kept(stack, keys.select(F.col("key").cast("string").alias(KEY_COLUMN), "_timestamp"))
    # As a number: collect() would turn a timestamp into one of the driver's zone.
    counts = keys.agg(F.count(F.lit(1)).alias("keys"), F.unix_micros(F.min("_timestamp")).alias("oldest"))
    with reading(keys.sparkSession):
        row = counts.collect()[0]
    scan.hops += 1
    lag = scan.state.min_compaction_lag.total_seconds()
    if row["oldest"] is not None and now().astimezone(UTC).timestamp() - row["oldest"] / 1e6 < lag:
        # The cleaner leaves a segment alone while one of its records is younger than the lag.
        scan.proven = True
        scan.words = f"all of hop {scan.hops} is younger than min.compaction.lag.ms"
    else:
        offsets = sum(end - hop.start[partition] for partition, end in hop.end.items())
        scan.words = f"hop {scan.hops} still had {offsets} offsets, {row['keys']} keys"
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
    """The newest records of keys that the table lacks, has older, or has though they are deleted."""
    wanted = labelled.where(F.col("_kind").isin(Kind.MISSING.value, Kind.STALE.value, _DELETED))
    # The whole scan's schema ids: of a lone foreign record none may be known.
    rows, columns, reader = decode_newest(job, table, wanted.select(*LATEST_COLUMNS), schemas, registry)
    kinds = wanted.select(F.col("_partition").alias("p"), F.col("_offset").alias("o"), "_kind")
    position = (F.col("_partition") == F.col("p")) & (F.col("_offset") == F.col("o"))
    rows = rows.join(kinds, position).drop("p", "o")
    missing = F.lit((Kind.UNSURE if grown else Kind.MISSING).value)
    kind = (
        F.when(F.col("_reason").isNotNull(), F.lit(Kind.UNREADABLE.value))
        .when(F.col("_kind") == _DELETED, F.lit(Kind.ZOMBIE.value))
        .when(F.col("_kind") == Kind.MISSING.value, missing)
        .otherwise(F.col("_kind"))
    )
    return kept(stack, rows.withColumn("_kind", kind)), columns, reader


def _check_unmoved(job: MaterializeJob, table: TargetTable, committed: Committed) -> None:
    """Rows and progress were read one after the other; where no lock keeps others out, they may not fit."""
    again = table.committed()
    if again is None or again.run != committed.run:
        raise OverlapError(f"{job}: another run has committed meanwhile", "run again when no other run is at work")


def _counted(kinds: DataFrame, examples: int) -> tuple[dict[Kind, int], dict[Kind, list[str]]]:
    """How many keys there are of each kind, and the first few of them."""
    within = Window.partitionBy("_kind")
    place = F.row_number().over(within.orderBy(F.col(KEY_COLUMN).asc_nulls_last()))
    count = F.count(F.lit(1)).over(within)
    # One row of a kind at least, for its count.
    listed = kinds.select("*", place.alias("place"), count.alias("count")).where(F.col("place") <= max(examples, 1))
    counts = dict.fromkeys(Kind, 0)
    shown: dict[Kind, list[str]] = {kind: [] for kind in Kind}
    for row in sorted(listed.collect(), key=lambda row: int(row["place"])):
        kind = Kind(row["_kind"])
        counts[kind] = int(row["count"])
        if examples and row[KEY_COLUMN] is not None:
            shown[kind].append(row[KEY_COLUMN])
    return counts, shown


def _by_partition(offsets: Mapping[int, int], partition: Column) -> Column:
    pairs = [F.lit(value) for pair in sorted(offsets.items()) for value in pair]
    return F.try_element_at(F.create_map(*pairs), partition)
