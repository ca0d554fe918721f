"""Spark's Kafka reader for one resolved range of a topic."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from outbox_spark.jobs.model import ReadRange
from outbox_spark.kafka.settings import java_settings

RECORD_COLUMNS = ["key", "value", "partition", "offset", "timestamp", "headers"]

# Spark's reader requests offsets twice per poll. With Kafka's default of 500 records per poll, these requests take most
# of the time. With 50,000 records, garbage collection takes most of it, as each collection copies a poll's records.
_CONSUMER_SETTINGS = {
    "isolation.level": "read_committed",
    "max.poll.records": "5000",
    "max.partition.fetch.bytes": str(8 << 20),
    "fetch.max.bytes": str(64 << 20),
    "receive.buffer.bytes": "-1",
    # The consumer prefetches. At the end of a topic the broker delays its response by this time, which also delays the
    # response to the reader's request for offsets: by default half a second per task.
    "fetch.max.wait.ms": "5",
}


def consumer_settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return settings of the Java consumer: the translated `kafka` settings, and settings for reading a range."""
    return {**java_settings(kafka), **_CONSUMER_SETTINGS}


def read_records(spark: SparkSession, kafka: Mapping[str, str], read_range: ReadRange) -> DataFrame:
    """Return the records of a range: key, value (binary), partition, offset, timestamp, headers (array of key, value).

    `assign` names the partitions, so that partitions that are added later do not change the range. With
    `failOnDataLoss` the run fails if the log starts after the range's start; offsets that compaction removed within
    the range are not a data loss.
    """
    options = {
        **{f"kafka.{name}": value for name, value in consumer_settings(kafka).items()},
        "assign": json.dumps({read_range.topic: sorted(read_range.end)}),
        "startingOffsets": _offsets_text(read_range.topic, read_range.start),
        "endingOffsets": _offsets_text(read_range.topic, read_range.end),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    return spark.read.format("kafka").options(**options).load().select(*RECORD_COLUMNS)


def stream_records(
    spark: SparkSession, kafka: Mapping[str, str], topic: str, starting_offsets: str, max_offsets: int | None
) -> DataFrame:
    """Return the records of a topic as a stream, with the columns of read_records. `max_offsets` is per micro-batch.

    The query fails if the log no longer has the offsets that it has to read.
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


def _offsets_text(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in sorted(offsets.items())}})
