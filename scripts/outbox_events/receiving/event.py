"""Define received events, and the ids by which a strategy recognizes duplicates."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, NoReturn

from confluent_kafka import Message

from outbox_events.contract.headers import EVENT_ID, EVENT_TYPE, SOURCE_SEQUENCE
from outbox_events.errors import RejectedError
from outbox_events.kafka.record import raw_headers, text_headers

if sys.version_info >= (3, 13):
    from typing import TypeVar
else:
    from typing_extensions import TypeVar  # psycopg requires it

Value = TypeVar("Value", default=Any)


class InvalidRecordError(RejectedError):
    """A record that a retry cannot make usable: its value cannot be decoded, or it does not have an id."""

    transient = False


@dataclass(frozen=True)
class Event(Generic[Value]):
    """One record of a topic. `headers` contains text. `timestamp_ms` is the record's timestamp in ms since 1970.

    `Event[BookLent]` is the type of an event whose value is a BookLent: see `Handlers.on(..., type=BookLent)`.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None = field(repr=False)
    raw_value: bytes | None = field(repr=False)
    """Value of the record. None is a tombstone, which means that the aggregate was deleted."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    raw_headers: Sequence[tuple[str, bytes | None]] = field(default=(), repr=False, compare=False)
    """All headers of the record. A name can occur more than once. A value can be null, or bytes that are not text."""
    timestamp_ms: int = 0
    decode: Callable[[Event], Any] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def value(self) -> Value:
        """Decoded value, or None for a tombstone. Raises InvalidRecordError if the value cannot be decoded."""
        value: Any = self.raw_value
        if self.raw_value is not None and self.decode is not None:
            value = self.decode(self)
        return value  # type: ignore[no-any-return]

    def copy(self) -> Event[Value]:
        """Return the event as it was received, because handlers can change the decoded value and the headers."""
        return replace(self, headers=dict(self.headers))

    @property
    def aggregate_id(self) -> str:
        """Key as text. Raises InvalidRecordError if the key is missing or not UTF-8."""
        try:
            if self.key is not None:
                return self.key.decode()
        except UnicodeDecodeError:
            pass
        raise InvalidRecordError(f"the key of record {self.place} is missing or not UTF-8")

    @property
    def event_type(self) -> str:
        """Value of the header `event_type`, or '' if the header is missing."""
        return self.headers.get(EVENT_TYPE, "")

    @property
    def event_id(self) -> str:
        """Value of the header `event_id`, or '' if the header is missing."""
        return self.headers.get(EVENT_ID, "")

    @property
    def source_sequence(self) -> str:
        """Value of the header `source_sequence` (docs/contract.md), or '' if the header is missing."""
        return self.headers.get(SOURCE_SEQUENCE, "")

    @property
    def source(self) -> tuple[str, int]:
        """Topic and partition of the record."""
        return self.topic, self.partition

    @property
    def place(self) -> str:
        """Position of the record as TOPIC/PARTITION/OFFSET."""
        return f"{self.topic}/{self.partition}/{self.offset}"


Decode = Callable[[Event], Any]
"""Returns the decoded value of a record whose `raw_value` is not None. Raises InvalidRecordError."""
Identify = Callable[[Event], str]
"""Returns the id of an event, the same in every delivery and unique in the topic. Raises InvalidRecordError."""


def header_id(event: Event) -> str:
    """Return the header `event_id`, which is the same in every delivery of an event."""
    if not event.event_id:
        raise InvalidRecordError(f"record {event.place} has no header event_id", "identify events by another id")
    return event.event_id


def position_id(event: Event) -> str:
    """Return TOPIC/PARTITION/OFFSET. This id identifies a redelivered record, but not an event that was produced twice.

    The records of a recreated topic would have the ids of earlier records, and would be treated as duplicates. Delete
    the group's ids before the recreated topic is read.
    """
    return event.place


def payload_id(field_name: str, *, tombstones: Identify | None = None) -> Identify:
    """Return a function that reads the id from a field of the decoded value.

    The field must have a different value in each event of a topic. The id of an aggregate does not identify its events.
    Tombstones have no fields. Without a function for `tombstones`, such as `header_id` or `position_id`, a tombstone
    has no id and is passed to the recoverer.
    """

    def identify(event: Event) -> str:
        if event.value is None and tombstones is not None:
            return tombstones(event)
        value = event.value.get(field_name) if isinstance(event.value, Mapping) else None
        if value is None:
            raise InvalidRecordError(f"record {event.place} has no field {field_name}")
        return str(value)

    return identify


def from_message(message: Message, decode: Decode | None = None) -> Event:
    """Convert a polled message, which must not be an error, to an event. `headers` omits headers with null values."""
    value, key = message.value(), message.key()
    return Event(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=key.encode() if isinstance(key, str) else key,
        raw_value=value.encode() if isinstance(value, str) else value,
        headers=text_headers(message),
        raw_headers=raw_headers(message),
        timestamp_ms=message.timestamp()[1],
        decode=decode,
    )


def raw(event: Event) -> bytes | None:
    """Return the value without decoding it."""
    return event.raw_value


def json_value(event: Event) -> Any:  # noqa: ANN401 - any JSON value
    """Decode a value that is JSON in UTF-8. Raises InvalidRecordError for any other value."""
    try:
        return json.loads(event.raw_value or b"", parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        # The message of the error would contain the payload.
        raise InvalidRecordError(f"value of record {event.place} is not JSON ({type(error).__name__})") from None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
