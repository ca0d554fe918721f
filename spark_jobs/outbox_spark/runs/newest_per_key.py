"""The newest record of every key, on raw bytes: before anything is decoded, which is 2 to 3 times as fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.framing import schema_guid, schema_id
from outbox_spark.decoding.record_keys import key_text
from outbox_spark.errors import RefusedError
from outbox_spark.jobs.model import Committed, Format, MaterializeJob, Ordering, ReadRange
from outbox_spark.kafka.newest_reader import COLUMNS, extracted
from outbox_spark.kafka.ordering import (
    GOOD_SEQUENCE,
    MALFORMED_SEQUENCE,
    NO_SEQUENCE,
    SEQUENCE_HEADER,
    SEQUENCE_LENGTH,
    sequence_kind,
    sequence_of,
)
from outbox_spark.kafka.topic import Topic
from outbox_spark.session.expression_cache import reused
from outbox_spark.session.persisted import counts_of_rows
from outbox_spark.session.stage_metrics import OBSERVATION

LATEST_COLUMNS = [
    "key", "raw_key", "value", "id_header", "schema_id", "schema_guid",
    "_sequence", "_partition_epoch", "_partition", "_offset", "_timestamp",
]  # fmt: skip

SUMMARIZED = ("_records", "_kinds", "schema_id", "schema_guid")
"""What a summary is made of, beside the timestamp that rows have too."""


@dataclass(frozen=True)
class Summary:
    """What is in a range, counted while it was reduced."""

    records: int
    keys: int
    kinds: int
    """Bits of the kinds of sequence that occur, see order.py."""
    newest: datetime | None
    """Kafka timestamp of the newest record."""


@dataclass(frozen=True)
class Schemas:
    """Which schemas the newest records of a range name."""

    ids: frozenset[int]
    guids: frozenset[str]
    """Where a frame has one instead of an id."""


def newest_of(job: MaterializeJob, topic: Topic, read: ReadRange) -> DataFrame:
    """The newest record of each key of a range, see newest_per_key."""
    key_format = job.options.key_format
    # A reader that leaves records out goes by the bytes of a key. Two keys of other formats that cannot be read are
    # two records for the quarantine, even where their bytes are the same.
    records = topic.newest(read) if key_format is Format.TEXT else extracted(topic.records(read))
    return newest_per_key(records, read.partition_epoch, key_format=key_format)


def newest_per_key(
    records: DataFrame, partition_epoch: int, *, every_version: bool = False, key_format: Format = Format.TEXT
) -> DataFrame:
    """Reduce records (newest_records.COLUMNS) to a row per key: LATEST_COLUMNS, and `_records`, `_kinds` for summarize.

    A record without a key is a row of its own: there is nothing that it could replace. With `every_version` one
    row is left for each version of each key: of the copies that a connector sends after a restart, which have the
    same source_sequence, the last. A key that cannot be read is NULL, and its bytes are in `raw_key`.
    """
    prepared = records.select(*_keyed(key_format)).select(*_prepared())
    if every_version:
        grouped = prepared.select("*", _version()).groupBy("hash", "key", "version")
    else:
        grouped = prepared.groupBy("hash", "key")
    return grouped.agg(*_newest()).select(*_results(partition_epoch))


@reused
def _keyed(key_format: Format) -> list[Column]:
    key = key_text(F.col("key"), F.col("key_id_header"), key_format)
    # Text is carried once: whoever needs the bytes has them in `key`.
    raw_key = F.lit(None).cast("binary") if key_format is Format.TEXT else F.col("key")
    others = [F.col(name) for name in COLUMNS if name not in ("key", "key_id_header")]
    return [key.alias("key"), raw_key.alias("raw_key"), *others]


@reused
def _prepared() -> list[Column]:
    return [
        # Grouping by a hash first sorts on a cheap prefix instead of on the key: a quarter less time.
        F.when(F.col("key").isNull(), _position()).otherwise(F.xxhash64("key")).alias("hash"),
        F.col("raw_key"),
        *[F.col(name) for name in COLUMNS if name != "key_id_header"],
    ]


def _position() -> Column:
    """Partition and offset as one number: what tells records without a key apart."""
    return F.shiftleft(F.col("partition").cast("long"), 48) + F.col("offset")


@reused
def _version() -> Column:
    return F.coalesce(F.col("sequence"), _position().cast("string").cast("binary")).alias("version")


@reused
def _newest() -> list[Column]:
    # The order of the struct's fields is the ordering rule; the partition epoch is one per run.
    record = F.struct("sequence", "offset", "partition", "timestamp", "value", "id_header", "raw_key")
    return [F.max(record).alias("newest"), F.sum("_records").alias("_records"), F.bit_or("_kinds").alias("_kinds")]


@reused
def _results(partition_epoch: int) -> list[Column]:
    value, header = F.col("newest.value"), F.col("newest.id_header")
    return [
        F.col("key"),
        F.col("newest.raw_key").alias("raw_key"),
        value.alias("value"),
        header.alias("id_header"),
        schema_id(value, header).alias("schema_id"),
        schema_guid(value, header).alias("schema_guid"),
        F.coalesce(F.col("newest.sequence").cast("string"), F.lit("")).alias("_sequence"),
        F.lit(partition_epoch).alias("_partition_epoch"),
        F.col("newest.partition").alias("_partition"),
        F.col("newest.offset").alias("_offset"),
        F.col("newest.timestamp").alias("_timestamp"),
        F.col("_records"),
        F.col("_kinds"),
    ]


def summarize(latest: DataFrame, *, observed: bool) -> tuple[Summary, Schemas]:
    """Count what `newest_per_key` reduced: the action that fills what is kept of it."""
    row = aggregated(latest, [*_counts(), *_schemas()], observed=observed)
    return summary_in(row), Schemas(frozenset(row["schema_ids"]), frozenset(row["schema_guids"]))


def aggregated(frame: DataFrame, sums: Sequence[Column], *, observed: bool) -> dict[str, Any]:
    """These sums of a frame, with `records` and `keys` among them: the action that fills what is kept of it."""
    counts = frame.agg(*sums)
    # Observed on the one row of the sums: for whoever listens to Spark's queries, at no cost per record.
    if observed:
        counts = counts.observe(OBSERVATION, F.max("records").alias("records"), F.max("keys").alias("keys"))
    return counts.collect()[0].asDict()


def sums_of(expected: Iterable[int | str]) -> list[Column]:
    """What summary_in, counts_in and are_expected read, of decoded rows that carry SUMMARIZED.

    `expected` are the ids and GUIDs of the schemas that they were decoded with.
    """
    ids = tuple(sorted(key for key in expected if isinstance(key, int)))
    guids = tuple(sorted(key for key in expected if isinstance(key, str)))
    return [*_counts(), *counts_of_rows(), _unexpected(ids, guids)]


def are_expected(sums: Mapping[str, Any]) -> bool:
    """Whether no record named another schema."""
    return bool(sums["unexpected"] == 0)


def summary_in(sums: Mapping[str, Any]) -> Summary:
    """The summary in these sums."""
    newest = None if sums["newest"] is None else datetime.fromtimestamp(sums["newest"] / 1_000_000, UTC)
    return Summary(sums["records"], sums["keys"], sums["kinds"], newest)


@reused
def _counts() -> list[Column]:
    return [
        F.coalesce(F.sum("_records"), F.lit(0)).alias("records"),
        F.count(F.lit(1)).alias("keys"),
        F.coalesce(F.bit_or("_kinds"), F.lit(0)).alias("kinds"),
        F.max(F.unix_micros("_timestamp")).alias("newest"),
    ]


@reused
def _schemas() -> list[Column]:
    return [
        F.collect_set("schema_id").alias("schema_ids"),
        F.collect_set("schema_guid").alias("schema_guids"),
    ]


@reused
def _unexpected(ids: tuple[int, ...], guids: tuple[str, ...]) -> Column:
    # A tombstone has neither.
    of_id = F.col("schema_id").isNotNull() & ~F.col("schema_id").isin(*ids)
    of_guid = F.col("schema_guid").isNotNull() & ~F.col("schema_guid").isin(*guids)
    return F.count_if(of_id | of_guid).alias("unexpected")


def ordering_of(
    job: MaterializeJob, summary: Summary, committed: Committed | None, records: Callable[[], DataFrame]
) -> Ordering | None:
    """The ordering of the table after this range; None while no record was ever read.

    Raises RefusedError when records with and without source_sequence would be mixed in one table: which
    of two such records is newer is not known. Only then `records` is asked for, and read for an example.
    """
    known = committed.ordering if committed else None
    if summary.kinds == 0:
        return known
    if summary.kinds == GOOD_SEQUENCE and known is not Ordering.OFFSET:
        return Ordering.SEQUENCE
    if summary.kinds == NO_SEQUENCE and known is not Ordering.SEQUENCE:
        return Ordering.OFFSET
    expected = known or (Ordering.SEQUENCE if summary.kinds & GOOD_SEQUENCE else Ordering.OFFSET)
    raise RefusedError(
        f"topic {job.topic}: {_mixture(summary.kinds, expected)}; {_example(records(), expected)}",
        "find who else produces to the topic; a topic is either the kit's, with the header on every record, "
        "or another's, with it on none. The way out is in docs/materialization.md, Errors",
    )


def _mixture(kinds: int, expected: Ordering) -> str:
    if kinds & MALFORMED_SEQUENCE:
        return f"a {SEQUENCE_HEADER} header is not {SEQUENCE_LENGTH} characters long"
    if expected is Ordering.SEQUENCE:
        return f"records without a {SEQUENCE_HEADER} header in a table that is ordered by it"
    return f"records with a {SEQUENCE_HEADER} header in a table that is ordered by offset"


def _example(records: DataFrame, expected: Ordering) -> str:
    good = GOOD_SEQUENCE if expected is Ordering.SEQUENCE else NO_SEQUENCE
    row = (
        records.select("partition", "offset", sequence_kind(sequence_of(F.col("headers"))).alias("kind"))
        .where(F.col("kind") != good)
        .orderBy("partition", "offset")
        .first()
    )
    # Compaction may have taken it away between the two reads.
    return f"first at partition {row['partition']}, offset {row['offset']}" if row else "its position is gone"
