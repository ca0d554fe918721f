"""Spark's Kafka reader for a range of a topic, which is the reference for the reader of outbox-spark.jar."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from outbox_spark.jobs.model import ReadRange, offsets_json
from outbox_spark.kafka.record_reader import RECORD_COLUMNS, consumer_settings, record_columns


def read_records(spark: SparkSession, kafka: Mapping[str, str], read_range: ReadRange) -> DataFrame:
    """Return the records of a range: key, value (binary), partition, offset, timestamp, headers (array of key, value).

    `assign` names the partitions, so that partitions that are added later do not change the range. With
    `failOnDataLoss`, the run fails if the log starts after the range's start. Offsets that compaction removed within
    the range do not count as data loss.
    """
    options = {
        **{f"kafka.{name}": value for name, value in consumer_settings(kafka).items()},
        "assign": json.dumps({read_range.topic: sorted(read_range.end)}),
        "startingOffsets": json.dumps({read_range.topic: offsets_json(read_range.start)}),
        "endingOffsets": json.dumps({read_range.topic: offsets_json(read_range.end)}),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    return spark.read.format("kafka").options(**options).load().select(*RECORD_COLUMNS)


def select_columns(records: DataFrame, *, requires_sequence: bool = False) -> DataFrame:
    """Return record_reader.COLUMNS of every record of `records`, which have RECORD_COLUMNS."""
    frame, spark = records.select(*record_columns(requires_sequence)), records.sparkSession
    jvm: Any = spark.sparkContext._jvm
    return DataFrame(jvm.io.outboxkit.spark.PersistedRows.withReadCheck(frame._jdf), spark)
