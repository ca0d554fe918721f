"""Values of the partition field for tombstones of aggregates that have no row left in the database.

A tombstone must be in the partition of the state that it deletes. The transform derives the partition from the value of
the column, so any value with the same partition is sufficient.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from outbox_events.contract.partitioner import partition_of
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.kafka.latest_records import LatestRecord, LatestRecords


def read_partition_values(deployment: Deployment, aggregate_type: str, keys: Iterable[str]) -> dict[str, str]:
    """Return a value of the partition field for each key that has a record on the topic. Read the entire topic.

    It is the value in the header of the record, if the field is one of `source.header_columns`.

    Raises UnreachableError, RejectedError, WaitTimeoutError, and RefusedError if the partition count is not that of
    the pipeline file.
    """
    pipeline = deployment.pipeline
    aggregate, topic = pipeline.aggregates[aggregate_type], pipeline.topic_of(aggregate_type)
    field = aggregate.partition_field
    records = LatestRecords(deployment.kafka, topic, header=field if field in pipeline.source.header_columns else None)
    records.read()
    if records.partition_count != aggregate.partitions:
        raise RefusedError(
            f"topic {topic} has {records.partition_count} partitions, the pipeline file has {aggregate.partitions}: "
            "the partitions of tombstones are unknown",
            f"correct aggregates.{aggregate_type}.partitions in the pipeline file, and run `outbox apply`",
        )
    return {key: _value(records.by_key[key], aggregate.partitions) for key in keys if key in records.by_key}


def _value(record: LatestRecord, partition_count: int) -> str:
    """Return the header of the record if it selects the record's partition, otherwise the first number that does."""
    if record.header and partition_of(record.header.encode(), partition_count) == record.partition:
        return record.header
    return next(
        str(number) for number in count() if partition_of(str(number).encode(), partition_count) == record.partition
    )
