"""The dead letter topic: what is new on it, one letter in full, and what has been dealt with.

Acknowledged is what the consumer group `outbox-kit.<pipeline>.dead-letter` has committed: its offset is the
first that nobody has dealt with.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from confluent_kafka import Message

from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.kafka import consumer_groups
from outbox_kit.kafka.topic_reader import read_each, read_one, text_headers
from outbox_kit.pipeline import Pipeline

LIST = "`outbox dead-letter list --all` shows what there is"


@dataclass(frozen=True)
class Place:
    """Where a record stands: PARTITION/OFFSET."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """The place that `text` names; None when it names none."""
        partition, slash, offset = text.partition("/")
        if not (slash and partition.isascii() and partition.isdecimal() and offset.isascii() and offset.isdecimal()):
            return None
        return cls(int(partition), int(offset))


@dataclass(frozen=True)
class DeadLetter:
    """One row that could not be routed; never its payload."""

    place: Place
    time: datetime
    aggregate_type: str
    key: str
    event_id: str
    reason: str
    message: str

    def to_dict(self) -> dict[str, object]:
        """For `--output json`."""
        return {**asdict(self), "place": str(self.place), "time": self.time.isoformat()}


def group_of(pipeline: Pipeline) -> str:
    """The consumer group whose offsets say what has been dealt with."""
    return f"outbox-kit.{pipeline.name}.dead-letter"


def listed(deployment: Deployment, *, everything: bool = False) -> list[DeadLetter]:
    """Dead letters that nobody has acknowledged, oldest first; or all that the topic still holds.

    Raises UnreachableError, RejectedError, WaitTimeoutError.
    """
    found: list[DeadLetter] = []
    bounds = consumer_groups.bounds(deployment.environment.kafka, deployment.pipeline.dead_letter_topic)
    starts = {number: bound.first for number, bound in bounds.items()} if everything else _open(deployment, bounds)
    _read(deployment, bounds, starts, found)
    return sorted(found, key=lambda letter: (letter.time, letter.place.partition, letter.place.offset))


def count(deployment: Deployment) -> int:
    """How many dead letters nobody has acknowledged."""
    return len(listed(deployment))


def show(deployment: Deployment, place: Place) -> tuple[DeadLetter, str]:
    """One dead letter and the row as JSON text. Raises RefusedError where there is no such record."""
    bound = _bounds_at(deployment, place)
    found = None
    if bound.first <= place.offset < bound.end:
        kafka, topic = deployment.environment.kafka, deployment.pipeline.dead_letter_topic
        found = read_one(kafka, topic, place.partition, place.offset)
    if found is None:
        raise RefusedError(f"there is no dead letter at {place} of {deployment.pipeline.dead_letter_topic}", LIST)
    value = found.value()
    return _letter(found), value.decode(errors="replace") if isinstance(value, bytes) else ""


def acknowledge(deployment: Deployment, upto: Place | None) -> int:
    """Mark dead letters as dealt with: those of one partition up to and with `upto`, or all that are there now.

    Returns how many. Nothing is deleted, and what is acknowledged stays so. Raises RefusedError.
    """
    kafka, topic = deployment.environment.kafka, deployment.pipeline.dead_letter_topic
    bounds = consumer_groups.bounds(kafka, topic)
    starts = _open(deployment, bounds)
    if upto is None:
        ends = {number: bound.end for number, bound in bounds.items()}
    else:
        bound = _bounds_at(deployment, upto)
        if upto.offset >= bound.end:
            raise RefusedError(f"{topic} has no record at {upto} yet", LIST)
        ends = {upto.partition: upto.offset + 1}
    ahead = {number: end for number, end in ends.items() if end > starts[number]}
    found: list[DeadLetter] = []
    _read(deployment, bounds, {number: starts[number] for number in ahead}, found)
    if ahead:
        consumer_groups.acknowledge(kafka, group_of(deployment.pipeline), topic, ahead)
    return sum(letter.place.offset < ahead[letter.place.partition] for letter in found)


def _open(deployment: Deployment, bounds: dict[int, consumer_groups.Bounds]) -> dict[int, int]:
    """First offset of each partition that is not acknowledged and still there."""
    kafka, topic = deployment.environment.kafka, deployment.pipeline.dead_letter_topic
    done = consumer_groups.acknowledged(kafka, group_of(deployment.pipeline), topic, [*bounds])
    return {number: max(done.get(number, 0), bound.first) for number, bound in bounds.items()}


def _read(
    deployment: Deployment, bounds: dict[int, consumer_groups.Bounds], starts: dict[int, int], found: list[DeadLetter]
) -> None:
    """A partition without a record from its start on is not asked at all: mostly that is every one."""
    unread = {number: start for number, start in starts.items() if start < bounds[number].end}
    topic = deployment.pipeline.dead_letter_topic
    read_each(deployment.environment.kafka, topic, unread, lambda message: found.append(_letter(message)))


def _bounds_at(deployment: Deployment, place: Place) -> consumer_groups.Bounds:
    topic = deployment.pipeline.dead_letter_topic
    bounds = consumer_groups.bounds(deployment.environment.kafka, topic)
    if place.partition not in bounds:
        raise RefusedError(f"{topic} has no partition {place.partition}", LIST)
    return bounds[place.partition]


def _letter(message: Message) -> DeadLetter:
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
    )
