"""Define records to produce, and read the headers of received records."""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka import Message

PRODUCER_SETTINGS: dict[str, str | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",  # default of Kafka's Java client, but not of librdkafka
}
"""Producer settings that prevent duplicates after retries and select the same partitions as Java clients."""


@dataclass(frozen=True, slots=True)
class Record:
    """Record to produce. If `value` is None, it is a tombstone. If `partition` is None, the partitioner selects it."""

    topic: str
    key: bytes | None
    value: bytes | None = field(repr=False)
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None


def header_pairs(message: Message) -> list[tuple[str, str | bytes | None]]:
    """Return the name and value of each header in order. A name can occur more than once."""
    headers = message.headers() or []
    return list(headers.items() if isinstance(headers, dict) else headers)


def raw_headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """Return the name of each header and its value as bytes, in order."""
    pairs = header_pairs(message)
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)


def text_headers(message: Message) -> dict[str, str]:
    """Return the headers of a record as text. Headers with a null value are omitted."""
    pairs = header_pairs(message)
    return {str(key): value.decode(errors="replace") for key, value in pairs if isinstance(value, bytes)}
