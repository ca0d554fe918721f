"""Kafka records of events, for the ways of sending that produce to Kafka themselves."""

from __future__ import annotations

from dataclasses import dataclass, field

PRODUCER_SETTINGS: dict[str, str | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",  # the partitioner of Kafka's Java client; the default of librdkafka differs
}
"""Settings of a confluent-kafka producer: retries without duplicates, and the partitions of Java clients."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a producer sends it. `value` None is a tombstone; `partition` None leaves it to the partitioner."""

    topic: str
    key: bytes | None
    value: bytes | None = field(repr=False)
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
