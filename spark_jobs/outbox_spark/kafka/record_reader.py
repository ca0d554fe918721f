"""Read a topic: as a stream with Spark's reader, or an offset range with the reader in outbox-spark.jar.

The jar's reader (spark_jobs/java) can omit records that newer records in its buffer supersede. With ten records per key
in the buffer, Spark creates rows for only a tenth of the records. The rows are then aggregated per key, so omitting
records does not change the result. Spark's reader would fail on a Kafka timestamp after the year 294247.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_events.contract.headers import SOURCE_SEQUENCE
from outbox_spark.decoding.framing import KEY_SCHEMA_ID_HEADER, VALUE_SCHEMA_ID_HEADER, last_header
from outbox_spark.jobs.model import ReadRange
from outbox_spark.kafka.ordering import VALID_SEQUENCE, sequence_kind
from outbox_spark.kafka.settings import java_settings
from outbox_spark.session.expressions import cached_expressions

RECORD_COLUMNS = ["key", "value", "partition", "offset", "timestamp", "headers"]

# Spark's reader requests offsets twice per poll. With Kafka's default of 500 records per poll, these requests take most
# of the time. With 50,000, garbage collection takes most of the time, because a collection copies a poll's records.
_CONSUMER_SETTINGS = {
    "isolation.level": "read_committed",
    "max.poll.records": "5000",
    "max.partition.fetch.bytes": str(8 << 20),
    "fetch.max.bytes": str(64 << 20),
    "receive.buffer.bytes": "-1",
    # The consumer prefetches records. At the end of a topic, the broker delays its response by this time. This also
    # delays the response to the reader's request for offsets, by default by half a second per task.
    "fetch.max.wait.ms": "5",
}

BUFFER_BYTES = 64 << 20
"""Maximum size in bytes of the records that one task buffers. The buffer is not part of Spark's managed memory."""
SMALL_OFFSETS = 20_000
"""Maximum number of offsets in a range that one task reads."""
MAX_TASK_OFFSETS = 5_000_000
"""Maximum number of offsets that one task reads, so that a task that runs again repeats a small part of a range."""
TIMEOUT_MILLIS = 120_000
"""Time for which a task waits for the broker without progress. Spark's reader has the same time limit."""

# Unlike Spark's reader, the jar's reader does not request offsets at each poll, so small polls are cheap. With large
# polls, garbage collection takes a third of the run time, because each collection copies the records of a poll.
_RANGE_SETTINGS = {"max.poll.records": "500"}

COLUMNS = [
    "key", "value", "partition", "offset", "timestamp", "sequence", "id_header", "key_id_header",
    "__outbox_records", "__outbox_kinds",
]  # fmt: skip
"""Columns of a row: the record, three of its headers (`sequence` is NULL if it is malformed), the number of records
that the row represents, and their kinds of sequence (the bits in ordering.py)."""


def consumer_settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the Java consumer: the translated `kafka` settings, and settings for reading a range."""
    return {**java_settings(kafka), **_CONSUMER_SETTINGS}


class RangeReader:
    """Reads ranges of a topic. Each execution of `frame` reads the range that was set last."""

    frame: DataFrame
    """COLUMNS for the newest record of each key in the range, and possibly for superseded records."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: Mapping[str, str],
        read_range: ReadRange,
        buffer_bytes: int = BUFFER_BYTES,
        timeout_millis: int = TIMEOUT_MILLIS,
        *,
        requires_sequence: bool = False,
    ) -> None:
        """Create the frame, with a task for each of `task_ranges`, or one task if the range is small."""
        newest_records: Any = spark.sparkContext._jvm.io.outboxkit.spark.NewestRecords  # type: ignore[union-attr]
        self._ranges, self._parallelism = newest_records.Ranges(), spark.sparkContext.defaultParallelism
        ranges = self.set(read_range)
        task_count = 1 if is_small(read_range) else len(ranges)
        settings = {**consumer_settings(kafka), **_RANGE_SETTINGS}
        java_frame = newest_records.of(
            spark._jsparkSession, self._ranges, task_count, settings, buffer_bytes, requires_sequence, timeout_millis
        )
        self.frame = DataFrame(java_frame, spark)

    def set(self, read_range: ReadRange) -> list[list[int]]:
        """Replace the range, which can have other partitions. Return the ranges of the tasks."""
        ranges = task_ranges(read_range, self._parallelism)
        self._ranges.set(read_range.topic, ranges)
        return ranges


def task_ranges(read_range: ReadRange, parallelism: int) -> list[list[int]]:
    """Divide a range into (partition, start offset, end offset), so that `parallelism` tasks have similar work.

    Partitions are divided if there are fewer of them than tasks that can run at the same time, or if they are large.
    """
    per_task = max(SMALL_OFFSETS, min(MAX_TASK_OFFSETS, -(-read_range.offset_count // parallelism)))
    ranges = []
    for partition, end in sorted(read_range.end.items()):
        start = read_range.start[partition]
        pieces = max(1, -(-(end - start) // per_task))
        bounds = [start + (end - start) * piece // pieces for piece in range(pieces + 1)]
        ranges += [[partition, lower, upper] for lower, upper in pairwise(bounds)]
    return ranges


def is_small(read_range: ReadRange) -> bool:
    """Return whether one task reads the range, because a shuffle would take longer than the records."""
    return read_range.offset_count <= SMALL_OFFSETS


def read_newest(
    spark: SparkSession,
    kafka: Mapping[str, str],
    read_range: ReadRange,
    buffer_bytes: int = BUFFER_BYTES,
    timeout_millis: int = TIMEOUT_MILLIS,
    *,
    requires_sequence: bool = False,
) -> DataFrame:
    """Return COLUMNS for the newest record of each key in a range, and possibly for superseded records.

    The query skips compacted offsets, but fails if the log starts after the start of the range. `buffer_bytes` applies
    to each task; if it is 0, every record is returned. With `requires_sequence`, a record without source_sequence has
    the kind MALFORMED_SEQUENCE.
    """
    reader = RangeReader(spark, kafka, read_range, buffer_bytes, timeout_millis, requires_sequence=requires_sequence)
    return reader.frame


def read_every(
    spark: SparkSession, kafka: Mapping[str, str], read_range: ReadRange, *, requires_sequence: bool = False
) -> DataFrame:
    """Return COLUMNS for every record in an offset range. `requires_sequence` has the same effect as in read_newest."""
    return read_newest(spark, kafka, read_range, buffer_bytes=0, requires_sequence=requires_sequence)


def stream_records(
    spark: SparkSession, kafka: Mapping[str, str], topic: str, starting_offsets: str, max_offsets: int | None
) -> DataFrame:
    """Return the records of a topic as a stream, with RECORD_COLUMNS. `max_offsets` limits each micro-batch.

    The query fails if the log no longer contains the offsets that it must read.
    """
    options = {
        **{f"kafka.{name}": value for name, value in consumer_settings(kafka).items()},
        "subscribe": topic,
        "startingOffsets": starting_offsets,
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        **({} if max_offsets is None else {"maxOffsetsPerTrigger": str(max_offsets)}),
    }
    return spark.readStream.format("kafka").options(**options).load().select(*RECORD_COLUMNS)


@cached_expressions
def record_columns(requires_sequence: bool = False) -> list[Column]:
    """Return the expressions that compute COLUMNS from RECORD_COLUMNS (see read_newest for the parameter)."""
    headers, sequence = F.col("headers"), last_header(F.col("headers"), SOURCE_SEQUENCE)
    kind = sequence_kind(sequence, required=requires_sequence)
    return [
        *map(F.col, ["key", "value", "partition", "offset", "timestamp"]),
        F.when(kind == VALID_SEQUENCE, sequence).alias("sequence"),
        # NULL if the schema id is in a frame before the body; newest_per_key decodes frames.
        last_header(headers, VALUE_SCHEMA_ID_HEADER).alias("id_header"),
        last_header(headers, KEY_SCHEMA_ID_HEADER).alias("key_id_header"),
        F.lit(1).cast("long").alias("__outbox_records"),
        kind.alias("__outbox_kinds"),
    ]
