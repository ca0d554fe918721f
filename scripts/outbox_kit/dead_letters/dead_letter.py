"""Parse a dead letter: its place, its reason, and the record that a consumer could not handle."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime

from confluent_kafka import Message

from outbox_events.contract.dead_letter_headers import ATTEMPTS, GROUP, MESSAGE, OFFSET, PARTITION, REASON, TOPIC
from outbox_events.contract.headers import AGGREGATE_TYPE, EVENT_ID, SOURCE_SEQUENCE
from outbox_events.contract.source_sequence import Version
from outbox_events.kafka.record import text_headers


@dataclass(frozen=True, order=True)
class Place:
    """Partition and offset of a record, written PARTITION/OFFSET."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """Parse PARTITION/OFFSET. Return None if `text` is malformed."""
        partition, slash, offset = text.partition("/")
        if not (slash and all(number.isascii() and number.isdecimal() for number in (partition, offset))):
            return None
        return cls(int(partition), int(offset))


@dataclass(frozen=True)
class FailedRecord:
    """Record that a consumer group could not handle."""

    group: str
    topic: str
    place: Place
    attempts: str

    def to_dict(self) -> dict[str, str]:
        return {"group": self.group, "topic": self.topic, "record": str(self.place), "attempts": self.attempts}


@dataclass(frozen=True)
class DeadLetter:
    """Dead letter for an outbox row that could not be routed, or for a record that a consumer rejected (`failed`).

    Only `record` contains the payload. repr() and to_dict() omit `record`.
    """

    place: Place
    time: datetime
    aggregate_type: str
    key: str
    event_id: str
    reason: str
    message: str
    source_sequence: str = ""
    failed: FailedRecord | None = None
    record: Message = field(repr=False, compare=False, kw_only=True)

    @property
    def version(self) -> Version:
        """Version that the record would have on its topic if it were valid."""
        return Version(self.source_sequence)

    @property
    def record_key(self) -> bytes | None:
        key = self.record.key()
        return key if isinstance(key, bytes) else None

    @property
    def value(self) -> bytes | None:
        value = self.record.value()
        return value if isinstance(value, bytes) else None

    def to_dict(self) -> dict[str, object]:
        names = [entry.name for entry in fields(self) if entry.name not in ("failed", "record")]
        document = {name: getattr(self, name) for name in names}
        failed = self.failed.to_dict() if self.failed else {}
        return {**document, "place": str(self.place), "time": self.time.isoformat(), **failed}


def is_dead_letter(message: Message) -> bool:
    """Return whether a record is a dead letter, which has a header that states the reason."""
    return REASON in text_headers(message)


def parse_dead_letter(message: Message) -> DeadLetter:
    """Return the dead letter that a record contains."""
    headers = text_headers(message)
    key = message.key()
    return DeadLetter(
        place=Place(message.partition() or 0, message.offset() or 0),
        time=datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC),
        aggregate_type=headers.get(AGGREGATE_TYPE, ""),
        key=key.decode(errors="replace") if isinstance(key, bytes) else "",
        event_id=headers.get(EVENT_ID, ""),
        reason=headers.get(REASON, ""),
        message=headers.get(MESSAGE, ""),
        source_sequence=headers.get(SOURCE_SEQUENCE, ""),
        failed=_failed_record(headers),
        record=message,
    )


def _failed_record(headers: dict[str, str]) -> FailedRecord | None:
    place = Place.parse(f"{headers.get(PARTITION)}/{headers.get(OFFSET)}")
    if place is None or not headers.get(TOPIC):
        return None
    return FailedRecord(headers.get(GROUP, ""), headers[TOPIC], place, headers.get(ATTEMPTS, ""))
