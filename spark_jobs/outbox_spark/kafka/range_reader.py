"""Reads one resolved range of a topic, exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from outbox_spark.jobs.model import ReadRange
from outbox_spark.kafka.settings import java_settings

RECORD_COLUMNS = ["key", "value", "partition", "offset", "timestamp", "headers"]

# Spark's reader asks the broker twice for offsets around every poll, and Kafka's default of 500 records per poll makes
# that dominate. With 50,000 the collector does: it copies what a poll holds every time that it runs.
_CONSUMER = {
    "isolation.level": "read_committed",
    "max.poll.records": "5000",
    "max.partition.fetch.bytes": str(8 << 20),
    "fetch.max.bytes": str(64 << 20),
    "receive.buffer.bytes": "-1",
    # The consumer asks for more as soon as it has something, and behind the end of a topic the broker holds that
    # request back for this long, and with it the reader's question for offsets: half a second per task by default.
    "fetch.max.wait.ms": "5",
}


def consumer_settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """Of Kafka's Java consumer: those of librdkafka that are given, and what reading a range wants."""
    return {**java_settings(kafka), **_CONSUMER}


def read_records(spark: SparkSession, kafka: Mapping[str, str], read: ReadRange) -> DataFrame:
    """The records of `read`: key, value (binary), partition, offset, timestamp, headers (array of key, value).

    `assign` names the partitions, so that a topic that grows meanwhile does not change the range.
    `failOnDataLoss` stays true: on a compacted topic missing offsets inside the range are normal and pass,
    a log start beyond the range fails the run.
    """
    assignment = {read.topic: sorted(read.end)}
    options = {
        **{f"kafka.{name}": value for name, value in consumer_settings(kafka).items()},
        "assign": json.dumps(assignment),
        "startingOffsets": _offsets(read.topic, read.start),
        "endingOffsets": _offsets(read.topic, read.end),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    return spark.read.format("kafka").options(**options).load().select(*RECORD_COLUMNS)


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in sorted(offsets.items())}})
