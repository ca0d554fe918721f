"""Reads a range without superseded records, by a reader of our own in a jar (spark_jobs/java).

A topic with ten records a key leaves a tenth, before Spark makes a row of any. It is no reduction by itself and changes
no result: the aggregation after it decides. So it may be left out, and is where the jar is not on the class path or a
setting says so; Spark's own reader then reads every record.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.framing import KEY_ID_HEADER, VALUE_ID_HEADER, header_of
from outbox_spark.jobs.model import ReadRange
from outbox_spark.kafka.ordering import sequence_kind, sequence_of
from outbox_spark.kafka.range_reader import consumer_settings, read_records
from outbox_spark.session.class_path import has_class
from outbox_spark.session.expression_cache import reused
from outbox_spark.session.jar_fallback import AUTO, Choice

CLASS = "io.outboxkit.spark.NewestRecords"
CHECKED_CLASS = "io.outboxkit.spark.KeptRows"
SETTING = "spark.outbox.reader"
VARIABLE = "OUTBOX_SPARK_READER"
LIMIT_BYTES = 64 << 20
"""Records that one task keeps before it hands them on. Beside Spark's own memory, so it counts in the heap."""
PATIENCE_MILLIS = 120_000
"""How long a task waits for the broker without getting further: as long as Spark's own reader."""

# It asks the broker for nothing around a poll, so many small ones cost little; what a large one holds is copied by the
# collector every time that it runs, which took a third of the time.
_CONSUMER = {"max.poll.records": "500"}

COLUMNS = [
    "key", "value", "partition", "offset", "timestamp", "sequence", "id_header", "key_id_header", "_records", "_kinds",
]  # fmt: skip
"""What is left of records: the headers that the jobs read, and how many records a row stands for (`_records`), with
which kinds of sequence (`_kinds`, bits of order.py)."""


class Reader(StrEnum):
    """Who reads records of which the newest of each key are wanted."""

    AUTO = AUTO
    NEWEST = "newest"
    """The one in the jar."""
    SPARK = "spark"


def read_newest(
    spark: SparkSession,
    kafka: Mapping[str, str],
    read: ReadRange,
    limit: int = LIMIT_BYTES,
    patience: int = PATIENCE_MILLIS,
) -> DataFrame:
    """COLUMNS of the records of `read`, where possible without those that are older than another of the same key.

    Like source.read_records it fails when the log does not hold the range, and passes what was compacted. `patience`
    is in ms. Raises ConfigurationError when the setting asks for what is not there.
    """
    if Choice(SETTING, VARIABLE, Reader.NEWEST, Reader.SPARK, CLASS).made(spark) is Reader.SPARK:
        return extracted(read_records(spark, kafka, read))
    jvm: Any = spark.sparkContext._jvm
    ranges = [[partition, read.start[partition], end] for partition, end in sorted(read.end.items())]
    settings = {**consumer_settings(kafka), **_CONSUMER}
    frame = jvm.io.outboxkit.spark.NewestRecords.of(spark._jsparkSession, read.topic, ranges, settings, limit, patience)
    return DataFrame(frame, spark)


def extracted(records: DataFrame) -> DataFrame:
    """COLUMNS of every record of source.RECORD_COLUMNS."""
    frame, spark = records.select(*_extracted()), records.sparkSession
    if not has_class(spark, CHECKED_CLASS):
        return frame
    jvm: Any = spark.sparkContext._jvm
    return DataFrame(jvm.io.outboxkit.spark.KeptRows.checked(frame._jdf), spark)


@reused
def _extracted() -> list[Column]:
    headers, sequence = F.col("headers"), sequence_of(F.col("headers"))
    return [
        *map(F.col, ["key", "value", "partition", "offset", "timestamp"]),
        sequence.alias("sequence"),
        # NULL where the id is in front of the value; what it says is read after the reduction.
        header_of(headers, VALUE_ID_HEADER).alias("id_header"),
        header_of(headers, KEY_ID_HEADER).alias("key_id_header"),
        F.lit(1).cast("long").alias("_records"),
        sequence_kind(sequence).alias("_kinds"),
    ]
