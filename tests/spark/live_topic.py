"""A Log as a topic that changes between calls, as a topic in Kafka does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tests.spark.kafka_log import START, Log, Record, Schemas
from tests.spark.spark_kafka import select_columns

from outbox_spark.jobs.model import ReadRange
from outbox_spark.kafka.offset_ranges import TopicDescription
from outbox_spark.kafka.topic_access import Topic
from outbox_spark.session.run_session import active_session


@dataclass
class LiveTopic:
    """Topic with the records of `log`. `before_read` is called with each range before the range is read."""

    spark: SparkSession
    log: Log
    schemas: Schemas
    delete_retention: timedelta = timedelta(days=1)
    min_compaction_lag: timedelta = timedelta(0)
    start: int = 0
    """Log start of every partition."""
    before_read: Callable[[ReadRange], None] = lambda _: None
    requires_sequence: bool = False
    reads: list[ReadRange] = field(default_factory=list)

    def topic(self) -> Topic:
        return Topic(
            self.describe,
            self.records,
            self.records,
            self.offsets_at,
            self.registry,
        )

    def describe(self) -> TopicDescription:
        earliest = dict.fromkeys(range(self.log.partitions), self.start)
        return TopicDescription(
            self.log.topic,
            self.log.topic_id,
            earliest,
            self.log.end(),
            self.delete_retention,
            self.min_compaction_lag,
        )

    def records(self, read_range: ReadRange) -> DataFrame:
        self.reads.append(read_range)
        self.before_read(read_range)
        return select_columns(self.log.read(active_session(), read_range), requires_sequence=self.requires_sequence)

    def offsets_at(self, state: TopicDescription, time: datetime) -> Mapping[int, int]:
        offsets = dict(state.end_offsets)
        for record in reversed(self.log.records):
            if self.timestamp(record) >= time:
                offsets[record.partition] = record.offset
        return offsets

    @staticmethod
    def timestamp(record: Record) -> datetime:
        return START + timedelta(seconds=record.offset)

    @contextmanager
    def registry(self) -> Iterator[Any]:
        yield self.schemas

    def compact(self, *keys: str) -> None:
        """Remove all records of these keys, including tombstones. Kafka never removes the last record of the topic."""
        end = self.log.end()
        self.log.records = [record for record in self.log.records if (record.key or b"").decode() not in keys]
        assert self.log.end() == end
