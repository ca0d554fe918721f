"""Access of a run to its topic; tests substitute the functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.jobs.model import MaterializeJob, ReadRange
from outbox_spark.kafka.newest_reader import read_newest
from outbox_spark.kafka.offset_ranges import TopicState, describe, offsets_at
from outbox_spark.kafka.range_reader import read_records


@dataclass(frozen=True)
class Topic:
    """The topic of one job."""

    describe: Callable[[], TopicState]
    """Request the current state from the broker."""
    records: Callable[[ReadRange], DataFrame]
    """Read the records of a range, with range_reader.RECORD_COLUMNS."""
    newest: Callable[[ReadRange], DataFrame]
    """Read a range with newest_reader.COLUMNS; may leave out records that a newer one of the same key supersedes."""
    offsets_at: Callable[[TopicState, datetime], Mapping[int, int]]
    """Return, by partition, the first offset whose record is not older than the time."""
    registry: Callable[[], AbstractContextManager[SchemaRegistry]]
    """Open the registry with the schemas of the topic's values."""


def topic_of(spark: SparkSession, job: MaterializeJob) -> Topic:
    """Return the job's topic in Kafka."""
    return Topic(
        describe=lambda: describe(job.kafka, job.topic),
        records=lambda read: read_records(spark, job.kafka, read),
        newest=lambda read: read_newest(spark, job.kafka, read),
        offsets_at=lambda state, time: offsets_at(job.kafka, state, time),
        registry=lambda: SchemaRegistry(job.registry),
    )
