"""Encode an outbox row as the same record that OutboxRouter would send for the row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outbox_events.errors import ConfigurationError
from outbox_events.kafka.record import Record
from outbox_kit.encoding import headers as record_headers
from outbox_kit.encoding.payloads import EncodePayload, payload_encoder
from outbox_kit.encoding.row import InvalidRowError, OutboxRow, quoted_name, require_text
from outbox_kit.pipeline import Aggregate, Lock, Pipeline

MAX_RECORD_BYTES = 1_000_000
"""Default value of OutboxRouter's max.record.bytes. It is lower than the brokers' default limit for a record."""
# An unexpected value in one row must not stop the relay, which would read the same row again forever. Other errors,
# such as a TypeError after a change of the column's type, are not caused by a single row. They stop the relay.
VALUE_ERRORS = (ArithmeticError, ValueError, RecursionError)

PartitionOf = Callable[[bytes, int], int]


@dataclass(frozen=True)
class _Route:
    topic: str
    aggregate: Aggregate
    encode: EncodePayload


class RecordEncoder:
    """Encodes the rows of one pipeline. Raises ConfigurationError if the lock file lacks a schema."""

    def __init__(self, pipeline: Pipeline, lock: Lock, partition_of: PartitionOf) -> None:
        """`partition_of` maps a key and a partition count to a partition, as Kafka's default partitioner does."""
        self.pipeline = pipeline
        self.reserved = record_headers.reserved_names(pipeline)
        self._partition_of = partition_of
        self._routes = {name: _route(pipeline, lock, name) for name in pipeline.routed}

    def encode(self, row: OutboxRow, sequence: str) -> Record:
        """Return the record for a row. `sequence` is its source_sequence. Raises InvalidRowError."""
        route = self._routes.get(row.aggregate_type or "")
        if route is None:
            problem = f"aggregate type {quoted_name(row.aggregate_type)} is not in the option aggregates"
            raise InvalidRowError("unknown-aggregate-type", problem)
        key = require_text(row.aggregate_id, "empty-key", "the aggregate id").encode()
        require_text(row.id, "empty-event-id", "the event id")
        require_text(row.event_type, "empty-event-type", "the event type")
        if row.event_time is None:
            problem = "the event time is null or not a timestamp of the years 0 to 9999"
            raise InvalidRowError("event-time-invalid", problem)
        names = record_headers.contract_headers(row, sequence, self.pipeline.source.header_columns)
        names += record_headers.row_headers(row.headers, self.reserved)
        partition = self._partition(route.aggregate, row)
        value = self._value(route, row)
        headers = record_headers.encoded(names + self._cloudevents(route.aggregate, row, value))
        return _within_limit(Record(route.topic, key, value, headers, partition))

    def _value(self, route: _Route, row: OutboxRow) -> bytes | None:
        if row.event_type in route.aggregate.tombstone_event_types:
            return None
        column = self.pipeline.source.schema_version_column
        try:
            return route.encode(row.payload, row.additional.get(column) if column else None)
        except VALUE_ERRORS as error:
            problem = f"the payload cannot be encoded ({type(error).__name__})"
            raise InvalidRowError("payload-invalid", problem) from None

    def _partition(self, aggregate: Aggregate, row: OutboxRow) -> int | None:
        column = aggregate.partition_field
        if column is None:
            return None
        text = require_text(row.additional.get(column), "empty-partition-field", f"column {column}")
        return self._partition_of(text.encode(), aggregate.partitions)

    def _cloudevents(self, aggregate: Aggregate, row: OutboxRow, value: bytes | None) -> record_headers.Headers:
        source = self.pipeline.source.cloudevents_source
        if source is None:
            return []
        kind = record_headers.content_type(aggregate.payload, is_json=row.payload_is_json)
        return record_headers.cloudevents_headers(source, row, None if value is None else kind)


def _route(pipeline: Pipeline, lock: Lock, name: str) -> _Route:
    aggregate, schemas = pipeline.routed[name], lock.schemas.get(name, [])
    if aggregate.schema_file is not None and not schemas:
        raise ConfigurationError(f"the lock file lacks a schema of aggregate type {name!r}", "run `outbox apply`")
    return _Route(pipeline.topic_of(name), aggregate, payload_encoder(name, aggregate, schemas))


def _within_limit(record: Record) -> Record:
    if record.size > MAX_RECORD_BYTES:
        problem = f"key, value and headers take {record.size} bytes; max.record.bytes is {MAX_RECORD_BYTES}"
        raise InvalidRowError("record-too-large", problem)
    return record
