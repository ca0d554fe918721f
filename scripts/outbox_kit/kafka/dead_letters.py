"""Dead letter topic: list, count, show and acknowledge dead letters.

The acknowledged offsets are the committed offsets of the consumer group `outbox-kit.<pipeline>.dead-letter`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from confluent_kafka import Message

from outbox_kit.errors import RefusedError
from outbox_kit.kafka.client import Bounds, KafkaClient
from outbox_kit.kafka.topic_reader import READ_TIMEOUT_S, read_record, read_records, text_headers
from outbox_kit.pipeline import Pipeline

LIST_HINT = "run `outbox dead-letter list --all`"


@dataclass(frozen=True)
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
class DeadLetter:
    """Record of an outbox row that could not be routed, without the payload of the row."""

    place: Place
    time: datetime
    aggregate_type: str
    key: str
    event_id: str
    reason: str
    message: str
    source_sequence: str = ""

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self), "place": str(self.place), "time": self.time.isoformat()}


def group_of(pipeline: Pipeline) -> str:
    """Return the consumer group whose committed offsets are the acknowledged offsets."""
    return f"outbox-kit.{pipeline.name}.dead-letter"


def list_letters(
    client: KafkaClient,
    pipeline: Pipeline,
    *,
    list_all: bool = False,
    limit: int | None = None,
    seconds: float = READ_TIMEOUT_S,
) -> list[DeadLetter]:
    """Return the unacknowledged dead letters, or all dead letters if `list_all` is set. The oldest is first.

    At most `limit` dead letters are read. Raises UnreachableError, RejectedError, and WaitTimeoutError after `seconds`.
    """
    bounds = client.bounds(pipeline.dead_letter_topic)
    first_offsets = {number: bound.first for number, bound in bounds.items()}
    start_offsets = first_offsets if list_all else _start_offsets(client, pipeline, bounds)
    messages = _read(client, pipeline, bounds, start_offsets, limit=limit, seconds=seconds)
    letters = [_dead_letter(message) for message in messages]
    return sorted(letters, key=lambda letter: (letter.time, letter.place.partition, letter.place.offset))


def count(client: KafkaClient, pipeline: Pipeline, *, limit: int | None = None, seconds: float = READ_TIMEOUT_S) -> int:
    """Return the number of unacknowledged dead letters, at most `limit`.

    Raises UnreachableError, RejectedError, and WaitTimeoutError after `seconds`.
    """
    bounds = client.bounds(pipeline.dead_letter_topic)
    start_offsets = _start_offsets(client, pipeline, bounds)
    return len(_read(client, pipeline, bounds, start_offsets, limit=limit, seconds=seconds))


def show(client: KafkaClient, pipeline: Pipeline, place: Place) -> tuple[DeadLetter, str]:
    """Return the dead letter at `place`, and its row as JSON text. Raises RefusedError if there is none."""
    topic = pipeline.dead_letter_topic
    bound = _bounds_of(client.bounds(topic), topic, place)
    message = None
    if bound.first <= place.offset < bound.end:
        message = read_record(client.kafka, topic, place.partition, place.offset)
    if message is None:
        raise RefusedError(f"topic {topic} has no dead letter at {place} (PARTITION/OFFSET)", LIST_HINT)
    value = message.value()
    return _dead_letter(message), value.decode(errors="replace") if isinstance(value, bytes) else ""


def acknowledge(client: KafkaClient, pipeline: Pipeline, upto: Place | None) -> int:
    """Acknowledge all dead letters, or those of one partition up to and including `upto`. Return their number.

    No record is deleted, and no acknowledged offset is lowered. Raises RefusedError if `upto` is after the end.
    """
    topic = pipeline.dead_letter_topic
    bounds = client.bounds(topic)
    start_offsets = _start_offsets(client, pipeline, bounds)
    if upto is None:
        end_offsets = {number: bound.end for number, bound in bounds.items()}
    else:
        if upto.offset >= _bounds_of(bounds, topic, upto).end:
            raise RefusedError(f"topic {topic} has no record at {upto} (PARTITION/OFFSET) yet", LIST_HINT)
        end_offsets = {upto.partition: upto.offset + 1}
    new_offsets = {number: end for number, end in end_offsets.items() if end > start_offsets[number]}
    messages = _read(client, pipeline, bounds, {number: start_offsets[number] for number in new_offsets})
    if new_offsets:
        client.commit_offsets(group_of(pipeline), topic, new_offsets)
    return sum((message.offset() or 0) < new_offsets[message.partition() or 0] for message in messages)


def _start_offsets(client: KafkaClient, pipeline: Pipeline, bounds: dict[int, Bounds]) -> dict[int, int]:
    """Return, by partition, the offset from which records are not acknowledged.

    A committed offset after the end, such as that of an earlier topic, would hide the next dead letters.
    """
    topic = pipeline.dead_letter_topic
    committed_offsets = client.committed_offsets(group_of(pipeline), topic, bounds)
    if any(offset > bounds[number].end for number, offset in committed_offsets.items()):
        current = client.bounds(topic)  # another command can have acknowledged records after `bounds`
        committed_offsets = {
            number: offset for number, offset in committed_offsets.items() if offset <= current[number].end
        }
    return {number: max(committed_offsets.get(number, 0), bound.first) for number, bound in bounds.items()}


def _read(
    client: KafkaClient,
    pipeline: Pipeline,
    bounds: dict[int, Bounds],
    start_offsets: dict[int, int],
    *,
    limit: int | None = None,
    seconds: float = READ_TIMEOUT_S,
) -> list[Message]:
    """Return the records from `start_offsets` (by partition). A partition without such records is not read."""
    unread_starts = {number: start for number, start in start_offsets.items() if start < bounds[number].end}
    messages: list[Message] = []
    read_records(client.kafka, pipeline.dead_letter_topic, unread_starts, messages.append, limit=limit, seconds=seconds)
    return messages


def _bounds_of(bounds: dict[int, Bounds], topic: str, place: Place) -> Bounds:
    if place.partition not in bounds:
        raise RefusedError(f"topic {topic} has no partition {place.partition}", LIST_HINT)
    return bounds[place.partition]


def _dead_letter(message: Message) -> DeadLetter:
    headers = text_headers(message)
    key = message.key()
    return DeadLetter(
        place=Place(message.partition() or 0, message.offset() or 0),
        time=datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC),
        aggregate_type=headers.get("aggregate_type", ""),
        key=key.decode(errors="replace") if isinstance(key, bytes) else "",
        event_id=headers.get("event_id", ""),
        reason=headers.get("dead_letter_reason", ""),
        message=headers.get("dead_letter_message", ""),
        source_sequence=headers.get("source_sequence", ""),
    )
