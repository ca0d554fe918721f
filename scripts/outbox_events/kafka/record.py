"""Records to send, and the headers of records that were received."""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka import Message

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


def header_pairs(message: Message) -> list[tuple[str, str | bytes | None]]:
    """Return name and value of each header, in their order; a name can occur more than once."""
    headers = message.headers() or []
    return list(headers.items() if isinstance(headers, dict) else headers)


def raw_headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """Return name and value of each header as bytes, in their order."""
    pairs = header_pairs(message)
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)


def text_headers(message: Message) -> dict[str, str]:
    """Return the headers of a record as text. Headers with a null value are omitted."""
    pairs = header_pairs(message)
    return {str(key): value.decode(errors="replace") for key, value in pairs if isinstance(value, bytes)}
