"""A topic as runs see it: what is there, and its records. One place to put another in for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from outbox_spark.decoding.schema_registry import SchemaRegistry
from outbox_spark.jobs.model import MaterializeJob, ReadRange
from outbox_spark.kafka.newest_reader import read_newest
from outbox_spark.kafka.range_reader import read_records
from outbox_spark.kafka.ranges import TopicState, describe, offsets_at


@dataclass(frozen=True)
class Topic:
    """The topic of one job."""

    ends: Callable[[], TopicState]
    """As it is now; asked anew each time."""
    records: Callable[[ReadRange], DataFrame]
    """The records of a range, with the columns of source.RECORD_COLUMNS."""
    newest: Callable[[ReadRange], DataFrame]
    """The same, but where it costs nothing without those that are older than another of the same key, with the columns
    newest_records.COLUMNS."""
    offsets_at: Callable[[TopicState, datetime], Mapping[int, int]]
    """By partition: the first offset that is not older."""
    registry: Callable[[], AbstractContextManager[SchemaRegistry]]
    """The schemas of its values."""


def topic_of(spark: SparkSession, job: MaterializeJob) -> Topic:
    """The topic of a job, in Kafka."""
    return Topic(
        ends=lambda: describe(job.kafka, job.topic),
        records=lambda read: read_records(spark, job.kafka, read),
        newest=lambda read: read_newest(spark, job.kafka, read),
        offsets_at=lambda state, time: offsets_at(job.kafka, state, time),
        registry=lambda: SchemaRegistry(job.registry),
    )
