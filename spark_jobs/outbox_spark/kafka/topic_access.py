"""Provide the functions with which a run reads its topic. Tests replace these functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from pyspark.sql import DataFrame, SparkSession

from outbox_events.schemas.registry_reader import RegistryReader
from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.jobs.model import MaterializeJob, ReadRange
from outbox_spark.kafka.offset_ranges import TopicAdmin, TopicDescription
from outbox_spark.kafka.record_reader import RangeReader, read_every, read_newest


@dataclass(frozen=True)
class Topic:
    """Access to the topic and the schema registry of one job."""

    describe: Callable[[], TopicDescription]
    """Request the description of the topic from the broker."""
    records: Callable[[ReadRange], DataFrame]
    """Read all records of an offset range; the columns are record_reader.COLUMNS."""
    newest: Callable[[ReadRange], DataFrame]
    """Read a range, possibly without records that a newer record of the same key in the range supersedes."""
    offsets_at: Callable[[TopicDescription, datetime], Mapping[int, int]]
    """Return, for each partition, the first offset whose Kafka timestamp is at or after the time."""
    open_registry: Callable[[], AbstractContextManager[SchemaRegistry]]
    """Open the registry with the schemas of the topic's values."""
    reader: Callable[[ReadRange], RangeReader] | None = None
    """Create a reader with the frame of `newest`, whose range can be replaced; None if the topic has no such reader."""


def topic_of(
    spark: SparkSession, job: MaterializeJob, admin: TopicAdmin | None = None, schemas: RegistryReader | None = None
) -> Topic:
    """Return access to the job's topic in Kafka. `admin` and `schemas` are clients that stay open."""
    topic_admin = cache(lambda: admin or TopicAdmin(job.kafka))
    required = job.requires_sequence
    return Topic(
        describe=lambda: topic_admin().describe(job.topic),
        records=lambda read_range: read_every(spark, job.kafka, read_range, requires_sequence=required),
        newest=lambda read_range: read_newest(spark, job.kafka, read_range, requires_sequence=required),
        offsets_at=lambda description, time: topic_admin().offsets_at(description, time),
        open_registry=lambda: SchemaRegistry(job.registry, schemas),
        reader=lambda read_range: RangeReader(spark, job.kafka, read_range, requires_sequence=required),
    )
