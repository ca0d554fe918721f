"""Define records to produce, and read the headers of received records."""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka import Message

from outbox_events.contract.headers import EVENT_ID
from outbox_events.errors import ConfigurationError

PRODUCER_SETTINGS: dict[str, str | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",  # default of Kafka's Java client, but not of librdkafka
}
"""Producer settings that prevent duplicates after retries and select the same partitions as Java clients."""

HEADER_FRAMING_BYTES = 10
"""Upper bound of the lengths that precede the name and the value of a header."""


@dataclass(frozen=True, slots=True)
class Record:
    """Record to produce. If `value` is None, it is a tombstone. If `partition` is None, the partitioner selects it."""

    topic: str
    key: bytes | None
    value: bytes | None = field(repr=False)
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None

    def __post_init__(self) -> None:
        """Raises ConfigurationError unless key and value are bytes or None, and the values of the headers are bytes."""
        object.__setattr__(self, "headers", tuple(self.headers))  # a list could be changed before it is produced
        contents = (("key", self.key), ("value", self.value))
        wrong = [(name, content) for name, content in contents if not isinstance(content, bytes | None)]
        wrong += [(f"header {name}", content) for name, content in self.headers if not isinstance(content, bytes)]
        for name, content in wrong:
            message = f"the {name} of a record must be bytes, not {type(content).__name__}"
            raise ConfigurationError(message, "encode it, for example with str.encode()")

    @property
    def size(self) -> int:
        """Size of key, value and headers in bytes, including the framing of each header."""
        headers = sum(HEADER_FRAMING_BYTES + len(name.encode()) + len(value) for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


def header_pairs(message: Message) -> list[tuple[str, str | bytes | None]]:
    """Return the name and value of each header in order. A name can occur more than once."""
    headers = message.headers() or []
    return list(headers.items() if isinstance(headers, dict) else headers)


def raw_headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """Return the name of each header and its value as bytes, in order."""
    pairs = header_pairs(message)
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)


def text_headers(message: Message) -> dict[str, str]:
    """Return the last value of each header as text. Null values are omitted."""
    values = {key: value for key, value in header_pairs(message) if isinstance(value, bytes)}
    return {key: id_text(value) if key == EVENT_ID else value.decode(errors="replace") for key, value in values.items()}


def id_text(value: bytes) -> str:
    """Return an event id as text that PostgreSQL can store. Different ids have different texts.

    An id that is not UTF-8, contains NUL or begins with \\x is returned as \\x and its hexadecimal digits.
    """
    text = value.decode(errors="replace")
    is_text = text.encode() == value and "\0" not in text and not text.startswith("\\x")
    return text if is_text else f"\\x{value.hex()}"
