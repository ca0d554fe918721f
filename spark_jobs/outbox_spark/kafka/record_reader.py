"""Kafka reader of outbox-spark.jar (spark_jobs/java), which can omit records that are superseded in its buffer.

With ten records per key in the buffer, Spark creates rows for only a tenth of the records. The rows are still
aggregated per key, so the final result is the same as that of all records. Spark's reader would fail for a Kafka
timestamp after the year 294247.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.framing import KEY_SCHEMA_ID_HEADER, VALUE_SCHEMA_ID_HEADER, last_header
from outbox_spark.jobs.model import ReadRange
from outbox_spark.kafka.ordering import VALID_SEQUENCE, sequence_kind, sequence_of
from outbox_spark.kafka.range_reader import consumer_settings
from outbox_spark.session.expressions import cached_expressions

BUFFER_BYTES = 64 << 20
"""Maximum size in bytes of the records that one task buffers: on the heap, outside of Spark's memory management."""
TIMEOUT_MILLIS = 120_000
"""Time for which a task waits for the broker without progress; the same as in Spark's reader."""

# Unlike Spark's reader, this one requests no offsets at each poll, so small polls are cheap. With large polls, garbage
# collection is a third of the run time, because each collection copies the records of a poll.
_CONSUMER_SETTINGS = {"max.poll.records": "500"}

COLUMNS = [
    "key", "value", "partition", "offset", "timestamp", "sequence", "id_header", "key_id_header",
    "__outbox_records", "__outbox_kinds",
]  # fmt: skip
"""Columns of a row: the record, three of its headers (`sequence` is NULL if it is malformed), the number of records
that the row represents, and their kinds of sequence (the bits in ordering.py)."""


def read_newest(
    spark: SparkSession,
    kafka: Mapping[str, str],
    read_range: ReadRange,
    buffer_bytes: int = BUFFER_BYTES,
    timeout_millis: int = TIMEOUT_MILLIS,
) -> DataFrame:
    """Return COLUMNS of the newest record of each key, and possibly of superseded records, of a range.

    The query fails if the log starts after the range's start; it skips offsets that were compacted. `buffer_bytes`
    applies to each task; with 0, no record is omitted.
    """
    jvm: Any = spark.sparkContext._jvm
    ranges = [[partition, read_range.start[partition], end] for partition, end in sorted(read_range.end.items())]
    settings = {**consumer_settings(kafka), **_CONSUMER_SETTINGS}
    frame = jvm.io.outboxkit.spark.NewestRecords.of(
        spark._jsparkSession, read_range.topic, ranges, settings, buffer_bytes, timeout_millis
    )
    return DataFrame(frame, spark)


def read_every(spark: SparkSession, kafka: Mapping[str, str], read_range: ReadRange) -> DataFrame:
    """Return the columns COLUMNS of all records of an offset range."""
    return read_newest(spark, kafka, read_range, buffer_bytes=0)


def select_columns(records: DataFrame) -> DataFrame:
    """Return COLUMNS of every record of `records`, which have range_reader.RECORD_COLUMNS."""
    frame, spark = records.select(*record_columns()), records.sparkSession
    jvm: Any = spark.sparkContext._jvm
    return DataFrame(jvm.io.outboxkit.spark.PersistedRows.withReadCheck(frame._jdf), spark)


@cached_expressions
def record_columns() -> list[Column]:
    """Return the expressions of COLUMNS over range_reader.RECORD_COLUMNS."""
    headers, sequence = F.col("headers"), sequence_of(F.col("headers"))
    kind = sequence_kind(sequence)
    return [
        *map(F.col, ["key", "value", "partition", "offset", "timestamp"]),
        F.when(kind == VALID_SEQUENCE, sequence).alias("sequence"),
        # NULL if the schema id is in a frame before the body: newest_per_key decodes such ids.
        last_header(headers, VALUE_SCHEMA_ID_HEADER).alias("id_header"),
        last_header(headers, KEY_SCHEMA_ID_HEADER).alias("key_id_header"),
        F.lit(1).cast("long").alias("__outbox_records"),
        kind.alias("__outbox_kinds"),
    ]
