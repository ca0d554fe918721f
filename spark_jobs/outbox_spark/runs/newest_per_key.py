"""Reduce records to the newest record of each key. This is 2 to 3 times as fast before decoding as after decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_events.contract.headers import SOURCE_SEQUENCE
from outbox_events.errors import RefusedError
from outbox_spark.decoding.framing import has_schema, schema_guid, schema_id
from outbox_spark.decoding.record_keys import key_text
from outbox_spark.jobs.model import (
    MaterializeJob,
    Mode,
    Ordering,
    ReadRange,
    RecordFormat,
    TableProgress,
    UnsequencedRecords,
)
from outbox_spark.kafka.ordering import (
    MALFORMED_SEQUENCE,
    NO_SEQUENCE,
    VALID_SEQUENCE,
)
from outbox_spark.kafka.record_reader import COLUMNS
from outbox_spark.kafka.topic_access import Topic
from outbox_spark.session.expressions import cached_expressions
from outbox_spark.session.persisted import count_expressions
from outbox_spark.session.stage_metrics import OBSERVATION

LATEST_COLUMNS = [
    "key", "raw_key", "value", "id_header", "__outbox_schema_id", "__outbox_schema_guid",
    "_sequence", "_partition_epoch", "_partition", "_offset", "_timestamp",
]  # fmt: skip

_RECORD_FIELDS = ("sequence", "offset", "partition", "timestamp", "value", "id_header", "raw_key")
"""Fields of a record, in the order in which max() compares them. This implements the ordering rule; the partition epoch
is omitted, because it is constant within a range."""

SUMMARIZED = ("__outbox_records", "__outbox_kinds", "__outbox_schema_guid")
"""Columns from which a summary is computed, in addition to the columns of decode()."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MIN_MICROS, MAX_MICROS = (
    (time - _EPOCH) // timedelta(microseconds=1)
    for time in (datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC))
)
"""Range of the Kafka timestamps, in microseconds, that Python can represent in every time zone."""


@dataclass(frozen=True)
class RangeSummary:
    """Counts of the records in a range, computed while the range is reduced."""

    record_count: int
    key_count: int
    sequence_kinds: int
    """Bits of the sequence kinds that occur in the range (see kafka/ordering.py)."""
    newest_timestamp: datetime | None
    """Kafka timestamp of the newest record."""


@dataclass(frozen=True)
class SchemaReferences:
    """Schemas that the newest records of a range refer to."""

    ids: frozenset[int]
    guids: frozenset[str]
    """Schema GUIDs of the values that have a GUID instead of an id."""


def newest_of(job: MaterializeJob, topic: Topic, read_range: ReadRange, *, every_version: bool = False) -> DataFrame:
    """Return the newest record of each key of a range or, with `every_version`, all versions (see newest_per_key)."""
    may_skip = may_skip_records(job) and not every_version
    records, key_format = topic.newest(read_range) if may_skip else topic.records(read_range), job.options.key_format
    return newest_per_key(records, read_range.partition_epoch, every_version=every_version, key_format=key_format)


def may_skip_records(job: MaterializeJob) -> bool:
    """Return whether superseded records of the job may be omitted before their keys are decoded (topic.newest).

    The reader compares the bytes of keys. In JSON formats, it would keep only one of several records with the same
    unreadable key, but every record with an unreadable key must be quarantined. A history needs every version.
    """
    return job.options.key_format is RecordFormat.TEXT and job.options.mode is not Mode.HISTORY


def newest_per_key(
    records: DataFrame,
    partition_epoch: int,
    *,
    every_version: bool = False,
    key_format: RecordFormat = RecordFormat.TEXT,
) -> DataFrame:
    """Reduce records (record_reader.COLUMNS) to one row per key, with LATEST_COLUMNS and columns for summarize.

    A record without a key or with a malformed source_sequence does not supersede other records, so it is a separate
    row. A malformed source_sequence is NULL in `_sequence`. `_timestamp` is NULL if it is not between MIN_MICROS and
    MAX_MICROS. An unreadable key is NULL, and its bytes are in `raw_key`. With `every_version`, every record has a row,
    except copies with the same source_sequence, which a connector sends after a restart. Only the last copy has a row.
    """
    hashed = records.select(*_with_key_text(key_format)).select(*_with_hash())
    if every_version:
        grouped = hashed.select("*", _sequence_or_record_id()).groupBy("hash", "key", "event")
    else:
        grouped = hashed.groupBy("hash", "key")
    return grouped.agg(*_newest_and_sums()).select(*_latest_columns(partition_epoch))


def every_record(records: DataFrame, key_format: RecordFormat) -> DataFrame:
    """Return LATEST_COLUMNS for every record (record_reader.COLUMNS), with partition epoch 0."""
    with_key = records.select(*_with_key_text(key_format))
    newest = with_key.select("key", F.struct(*_RECORD_FIELDS).alias("newest"), "__outbox_records", "__outbox_kinds")
    return newest.select(*_latest_columns(0)).select(*LATEST_COLUMNS)


@cached_expressions
def _with_key_text(key_format: RecordFormat) -> list[Column]:
    key = key_text(F.col("key"), F.col("key_id_header"), key_format)
    # If keys are text, the column `key` already contains their bytes.
    raw_key = F.lit(None).cast("binary") if key_format is RecordFormat.TEXT else F.col("key")
    other_columns = [F.col(name) for name in COLUMNS if name not in ("key", "key_id_header")]
    return [key.alias("key"), raw_key.alias("raw_key"), *other_columns]


@cached_expressions
def _with_hash() -> list[Column]:
    return [
        # With a hash as the first grouping column, Spark sorts by a short prefix, so sorting takes a quarter less time.
        F.when(F.col("key").isNull() | _has_malformed_sequence(), _record_id())
        .otherwise(F.xxhash64("key"))
        .alias("hash"),
        F.col("raw_key"),
        *[F.col(name) for name in COLUMNS if name != "key_id_header"],
    ]


def _has_malformed_sequence() -> Column:
    return F.col("__outbox_kinds") == MALFORMED_SEQUENCE


def _record_id() -> Column:
    """Return the partition and offset of a record as one number, which identifies the record."""
    return F.shiftleft(F.col("partition").cast("long"), 48) + F.col("offset")


@cached_expressions
def _sequence_or_record_id() -> Column:
    return F.coalesce(F.col("sequence"), _record_id().cast("string").cast("binary")).alias("event")


@cached_expressions
def _newest_and_sums() -> list[Column]:
    return [
        F.max(F.struct(*_RECORD_FIELDS)).alias("newest"),
        F.sum("__outbox_records").alias("__outbox_records"),
        F.bit_or("__outbox_kinds").alias("__outbox_kinds"),
    ]


@cached_expressions
def _latest_columns(partition_epoch: int) -> list[Column]:
    value, header, timestamp = F.col("newest.value"), F.col("newest.id_header"), F.col("newest.timestamp")
    return [
        F.col("key"),
        F.col("newest.raw_key").alias("raw_key"),
        value.alias("value"),
        header.alias("id_header"),
        schema_id(value, header).alias("__outbox_schema_id"),
        schema_guid(value, header).alias("__outbox_schema_guid"),
        F.when(~_has_malformed_sequence(), F.coalesce(F.col("newest.sequence").cast("string"), F.lit(""))).alias(
            "_sequence"
        ),
        F.lit(partition_epoch).alias("_partition_epoch"),
        F.col("newest.partition").alias("_partition"),
        F.col("newest.offset").alias("_offset"),
        F.when(F.unix_micros(timestamp).between(MIN_MICROS, MAX_MICROS), timestamp).alias("_timestamp"),
        F.col("__outbox_records"),
        F.col("__outbox_kinds"),
    ]


def summarize(latest: DataFrame, *, with_observation: bool) -> tuple[RangeSummary, SchemaReferences]:
    """Return the counts and schemas of the result of `newest_per_key`. This action persists the result."""
    row = collect_metrics(latest, [*_counts(), *_schemas()], with_observation=with_observation)
    return summary_from(row), SchemaReferences(frozenset(row["schema_ids"]), frozenset(row["schema_guids"]))


def collect_metrics(frame: DataFrame, metrics: Sequence[Column], *, with_observation: bool) -> dict[str, Any]:
    """Return the metrics of a frame, including `records` and `keys`. This action persists the frame."""
    counts = frame.agg(*metrics)
    # Spark's query listeners receive the metrics as an observation of a single row, which costs nothing per record.
    if with_observation:
        counts = counts.observe(OBSERVATION, F.max("records").alias("records"), F.max("keys").alias("keys"))
    return counts.collect()[0].asDict()


def summary_metrics(expected: Iterable[int | str]) -> list[Column]:
    """Return aggregates over decoded rows with SUMMARIZED, for summary_from, counts_from and schemas_are_expected.

    `expected` contains the ids and GUIDs of the schemas with which the rows were decoded.
    """
    return [*_counts(), *count_expressions(), _unexpected(tuple(sorted(expected, key=str)))]


def schemas_are_expected(metrics: Mapping[str, Any]) -> bool:
    """Return whether every record has one of the expected schemas, according to summary_metrics."""
    return bool(metrics["unexpected"] == 0)


def summary_from(metrics: Mapping[str, Any]) -> RangeSummary:
    """Return the summary from the values of summary_metrics."""
    newest = None if metrics["newest"] is None else datetime.fromtimestamp(metrics["newest"] / 1_000_000, UTC)
    return RangeSummary(metrics["records"], metrics["keys"], metrics["kinds"], newest)


@cached_expressions
def _counts() -> list[Column]:
    return [
        F.coalesce(F.sum("__outbox_records"), F.lit(0)).alias("records"),
        F.count(F.lit(1)).alias("keys"),
        F.coalesce(F.bit_or("__outbox_kinds"), F.lit(0)).alias("kinds"),
        F.max(F.unix_micros("_timestamp")).alias("newest"),
    ]


@cached_expressions
def _schemas() -> list[Column]:
    return [
        F.collect_set("__outbox_schema_id").alias("schema_ids"),
        F.collect_set("__outbox_schema_guid").alias("schema_guids"),
    ]


@cached_expressions
def _unexpected(expected: tuple[int | str, ...]) -> Column:
    # A tombstone has neither an id nor a GUID.
    refers_to_schema = F.col("__outbox_schema_id").isNotNull() | F.col("__outbox_schema_guid").isNotNull()
    return F.count_if(refers_to_schema & ~has_schema(expected)).alias("unexpected")


def ordering_of(
    job: MaterializeJob, summary: RangeSummary, committed: TableProgress | None, records: Callable[[], DataFrame]
) -> Ordering | None:
    """Return the ordering of the table after this range; None if no record has been read yet.

    A table that was ordered by offset can become ordered by source_sequence, because its rows have the lowest
    source_sequence. Raises RefusedError if records without source_sequence follow records that have it, because their
    order is undefined. `records` is called only in this case, to find the location of an example.
    """
    known = committed.ordering if committed else None
    kinds = summary.sequence_kinds & ~MALFORMED_SEQUENCE  # records with a malformed header are quarantined
    if kinds == 0:
        return known
    if kinds == VALID_SEQUENCE:
        return Ordering.SEQUENCE
    if kinds == NO_SEQUENCE and known is not Ordering.SEQUENCE:
        return Ordering.OFFSET
    raise RefusedError(
        f"topic {job.topic}: records without a {SOURCE_SEQUENCE} header in a table that is ordered by this header; "
        f"{_describe_example(records())}",
        "run `outbox verify`, whose check kafka.source-sequence prints the commands that remove these records; or set "
        f"unsequenced_records to {UnsequencedRecords.QUARANTINE}, so that records without the header change no row",
    )


def _describe_example(records: DataFrame) -> str:
    row = (
        records.select("partition", "offset", "__outbox_kinds")
        .where(F.col("__outbox_kinds") == NO_SEQUENCE)
        .orderBy("partition", "offset")
        .first()
    )
    # Compaction may have removed the record between the two reads.
    return (
        f"first at partition {row['partition']}, offset {row['offset']}"
        if row
        else "the record has been compacted away"
    )
