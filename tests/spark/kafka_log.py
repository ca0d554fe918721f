"""Topics in memory, whose records have the form of the Kafka source. oracle.py computes the expected table."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import fastavro
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.jobs.model import ReadRange, TableProgress

SOURCE_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp long, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
START = datetime(2026, 1, 1, tzinfo=UTC)


def sequence(commit: int, event: int = 0, epoch: int = 0) -> str:
    """Return a source_sequence header."""
    return f"{epoch:04x}_{commit:016x}-{event:016x}"


def framed(schema: Mapping[str, Any], schema_id: int, value: Mapping[str, Any]) -> bytes:
    """Return a value in Confluent wire format."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(dict(schema)), dict(value))
    return b"\x00" + struct.pack(">I", schema_id) + body.getvalue()


@dataclass(frozen=True)
class Record:
    """One record. `state` is its decoded value (a dict), None for a tombstone, or POISON."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    sequence: str | None
    state: object = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    """Additional headers."""
    millis: int | None = None
    """Kafka timestamp, by default START plus one second per offset."""


POISON = object()
"""The state of a record whose value cannot be read."""


@dataclass
class Log:
    """A topic with its whole history."""

    topic: str
    partitions: int = 2
    topic_id: str = "topic-1"
    records: list[Record] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    """End offset by partition. It does not change when compaction removes the last record."""

    def append(
        self,
        key: str | bytes | None,
        value: bytes | None,
        sequence: str | None,
        state: object = None,
        partition: int | None = None,
        headers: Mapping[str, bytes] | None = None,
        millis: int | None = None,
    ) -> Record:
        """Append a record to the partition of its key, or to `partition`."""
        raw = key.encode() if isinstance(key, str) else key
        number = sum(raw or b"") % self.partitions if partition is None else partition
        record = Record(number, self.end()[number], raw, value, sequence, state, headers or {}, millis)
        self.records.append(record)
        self.ends[number] = record.offset + 1
        return record

    def end(self) -> dict[int, int]:
        """Return the end offset by partition."""
        return {number: self.ends.get(number, 0) for number in range(self.partitions)}

    def before(self, end: Mapping[int, int]) -> list[Record]:
        """Return the records that a table has processed if it was read up to `end`."""
        return [r for r in self.records if r.offset < end[r.partition]]

    def range_from(self, committed: TableProgress | None, end: Mapping[int, int] | None = None) -> ReadRange:
        """Return the range from the committed offsets to `end`, by default the end of the log."""
        start = dict(committed.offsets) if committed else dict.fromkeys(range(self.partitions), 0)
        epoch = committed.partition_epoch if committed else 0
        return ReadRange(self.topic, self.topic_id, epoch, start, dict(end or self.end()))

    def read(self, spark: SparkSession, read_range: ReadRange) -> DataFrame:
        """Return the records of a range, in the form of the Kafka source."""
        return as_frame(spark, self.topic, self.within(read_range))

    def within(self, read_range: ReadRange) -> list[Record]:
        """Return the records of a range."""
        return [r for r in self.records if read_range.start[r.partition] <= r.offset < read_range.end[r.partition]]


def as_frame(spark: SparkSession, topic: str, records: Iterable[Record]) -> DataFrame:
    """Return records with the schema of the Kafka source."""
    rows = [
        (
            record.key,
            record.value,
            topic,
            record.partition,
            record.offset,
            (int(START.timestamp() + record.offset) * 1000 if record.millis is None else record.millis) * 1000,
            0,
            _headers(record),
        )
        for record in records
    ]
    frame = spark.createDataFrame(rows, SOURCE_SCHEMA).withColumn("timestamp", F.timestamp_micros("timestamp"))
    return frame.repartition(2)


def _headers(record: Record) -> list[tuple[str, bytes]]:
    headers = [("event_type", b"Changed"), *record.headers.items()]
    if record.sequence is not None:
        headers.append(("source_sequence", record.sequence.encode()))
    return headers


@dataclass
class Schemas:
    """A registry in memory, which has the interface of SchemaRegistry but does not use the network."""

    by_number: dict[int, dict[str, Any]]
    newest: int
    by_name: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By GUID."""

    def latest(self, subject: str) -> str:
        return self.version(subject, self.newest)

    def version(self, subject: str, version: int) -> str:
        """Return a version, whose number is also its id."""
        assert subject.endswith("-value")
        return json.dumps(self.by_number[version])

    def recent(self, subject: str) -> dict[int | str, str]:
        """Return only the newest schema, so that runs do not expect older schemas."""
        return {self.newest: self.latest(subject)}

    def schema(self, key: int | str) -> str | None:
        schema = self.by_number.get(key) if isinstance(key, int) else self.by_name.get(key)
        return None if schema is None else json.dumps(schema)
