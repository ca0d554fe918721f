"""List, count, show and acknowledge the dead letters of the connector or of a consumer.

A consumer group's committed offset acknowledges all earlier offsets; its metadata lists further acknowledged ones. The
group is `outbox-kit.<pipeline>.dead-letter` for the connector's topic, `outbox-kit.<topic>` for a consumer's topic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from confluent_kafka import Message

from outbox_events.errors import RefusedError
from outbox_events.kafka.topic_reader import READ_TIMEOUT_S, read_record, read_records
from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.dead_letters.dead_letter import DeadLetter, Place, is_dead_letter, parse_dead_letter
from outbox_kit.dead_letters.offset_metadata import Acknowledged
from outbox_kit.kafka.client import KafkaClient, client_settings
from outbox_kit.pipeline import Pipeline


@dataclass(frozen=True)
class DeadLetterSource:
    """Dead letter topic, and the consumer group whose committed offsets are the acknowledged offsets."""

    name: str
    group: str
    of_connector: bool

    @property
    def option(self) -> str:
        """Command-line option that selects this topic, preceded by a space; empty for the connector's topic."""
        return "" if self.of_connector else f" --topic {self.name}"

    def require_dead_letter(self, record: Message) -> None:
        """Raise RefusedError if this is a consumer's topic and the record is not a dead letter."""
        if not self.of_connector and not is_dead_letter(record):
            place = f"{record.partition()}/{record.offset()}"
            message = f"topic {self.name} is not a dead letter topic: its record {place} is not a dead letter"
            raise RefusedError(message, "give --topic the name of a consumer's dead letter topic")

    @property
    def list_hint(self) -> str:
        """Hint to run the command that lists all dead letters of this topic."""
        return f"run `outbox dead-letter list --all{self.option}`"


def group_of(pipeline: Pipeline) -> str:
    """Return the consumer group whose committed offsets are the acknowledged offsets of the connector's topic."""
    return f"outbox-kit.{pipeline.name}.dead-letter"


def dead_letter_source(pipeline: Pipeline, name: str | None = None) -> DeadLetterSource:
    """Return a consumer's dead letter topic, or the connector's if `name` is None or names the connector's topic."""
    if name is None or name == pipeline.dead_letter_topic:
        return DeadLetterSource(pipeline.dead_letter_topic, group_of(pipeline), of_connector=True)
    return DeadLetterSource(name, f"outbox-kit.{name}", of_connector=False)


def read_dead_letters(
    client: KafkaClient,
    pipeline: Pipeline,
    *,
    topic: str | None = None,
    list_all: bool = False,
    limit: int | None = None,
    seconds: float = READ_TIMEOUT_S,
) -> list[DeadLetter]:
    """Return the unacknowledged dead letters, or all dead letters if `list_all` is set, from oldest to newest.

    At most `limit` dead letters are read. Raises UnreachableError, RejectedError, and WaitTimeoutError after `seconds`.
    """
    source = dead_letter_source(pipeline, topic)
    bounds = client.bounds(source.name)
    acknowledged = {} if list_all else _acknowledged(client, source, bounds)
    messages = _read_after(client, source, bounds, acknowledged, limit=limit, seconds=seconds)
    return sorted(map(parse_dead_letter, messages), key=lambda dead_letter: (dead_letter.time, dead_letter.place))


def count(client: KafkaClient, pipeline: Pipeline, *, limit: int | None = None, seconds: float = READ_TIMEOUT_S) -> int:
    """Return the number of unacknowledged dead letters of the connector, at most `limit`.

    Raises UnreachableError, RejectedError, and WaitTimeoutError after `seconds`.
    """
    source = dead_letter_source(pipeline)
    bounds = client.bounds(source.name)
    acknowledged = _acknowledged(client, source, bounds)
    return len(_read_after(client, source, bounds, acknowledged, limit=limit, seconds=seconds))


def read_dead_letter(client: KafkaClient, pipeline: Pipeline, place: Place, topic: str | None = None) -> DeadLetter:
    """Return the dead letter at `place`. Raises RefusedError if `place` has no dead letter."""
    source = dead_letter_source(pipeline, topic)
    bound = _bounds_of(client.bounds(source.name), source, place)
    message = None
    if bound.first <= place.offset < bound.end:
        message = read_record(client_settings(client.kafka), source.name, place.partition, place.offset)
    if message is None:
        text = f"topic {source.name} has no dead letter at {place} (PARTITION/OFFSET)"
        raise RefusedError(text, source.list_hint)
    source.require_dead_letter(message)
    return parse_dead_letter(message)


def acknowledge(client: KafkaClient, pipeline: Pipeline, upto: Place | None, *, topic: str | None = None) -> int:
    """Acknowledge all dead letters, or one partition's up to and including `upto`. Return how many were acknowledged.

    Records are not deleted, and acknowledged offsets are not lowered. Raises RefusedError if `upto` is after the end.
    """
    source = dead_letter_source(pipeline, topic)
    bounds = client.bounds(source.name)
    if upto is None:
        end_offsets = {number: bound.end for number, bound in bounds.items()}
    else:
        if upto.offset >= _bounds_of(bounds, source, upto).end:
            message = f"topic {source.name} has no record at {upto} (PARTITION/OFFSET) yet"
            raise RefusedError(message, source.list_hint)
        end_offsets = {upto.partition: upto.offset + 1}
    acknowledged = _acknowledged(client, source, bounds)
    new_offsets = {number: end for number, end in end_offsets.items() if end > acknowledged[number].upto}
    messages = _read_after(client, source, {number: bounds[number] for number in new_offsets}, acknowledged)
    new = {
        number: Acknowledged(end, frozenset(offset for offset in acknowledged[number].single if offset >= end))
        for number, end in new_offsets.items()
    }
    _commit(client, source, new)
    return sum((message.offset() or 0) < new_offsets[message.partition() or 0] for message in messages)


def acknowledge_places(
    client: KafkaClient, pipeline: Pipeline, places: Collection[Place], *, topic: str | None = None
) -> int:
    """Acknowledge single dead letters, and return how many of them were not acknowledged before.

    Raises RefusedError if the list of single offsets is too long for the metadata of a committed offset.
    """
    source = dead_letter_source(pipeline, topic)
    bounds = client.bounds(source.name)
    acknowledged = _acknowledged(client, source, bounds)
    new_places = {place for place in places if place.offset not in acknowledged[place.partition]}
    partitions = {place.partition for place in new_places}
    messages = _read_after(client, source, {number: bounds[number] for number in partitions}, acknowledged)
    new = {}
    for number in partitions:
        existing = [message.offset() or 0 for message in messages if message.partition() == number]
        offsets = [place.offset for place in new_places if place.partition == number]
        new[number] = acknowledged[number].add(offsets, existing)
    _commit(client, source, new)
    return len(new_places)


def purge(client: KafkaClient, pipeline: Pipeline, *, topic: str | None = None) -> int:
    """Delete each partition's records before the first unacknowledged record. Return the number of deleted offsets."""
    source = dead_letter_source(pipeline, topic)
    bounds = client.bounds(source.name)
    offsets = {number: entry.upto for number, entry in _acknowledged(client, source, bounds).items()}
    deleted = {number: offset for number, offset in offsets.items() if offset > bounds[number].first}
    if deleted:
        client.delete_records(source.name, deleted)
    return sum(offset - bounds[number].first for number, offset in deleted.items())


def _commit(client: KafkaClient, source: DeadLetterSource, acknowledged: Mapping[int, Acknowledged]) -> None:
    if acknowledged:
        offsets = {number: (entry.upto, entry.metadata) for number, entry in acknowledged.items()}
        client.commit_offsets(source.group, source.name, offsets)


def _acknowledged(
    client: KafkaClient, source: DeadLetterSource, bounds: Mapping[int, Bounds]
) -> dict[int, Acknowledged]:
    """Return a mapping from each partition to its acknowledged offsets.

    A committed offset beyond the end, for example from a deleted topic, is ignored, because it would hide dead letters.
    """
    committed = client.committed_offsets(source.group, source.name, bounds)
    if any(offset > bounds[number].end for number, (offset, _) in committed.items()):
        current = client.bounds(source.name)  # another command may have acknowledged new records
        committed = {number: entry for number, entry in committed.items() if entry[0] <= current[number].end}
    parsed = {number: Acknowledged.parse(*committed.get(number, (0, ""))) for number in bounds}
    return {
        number: Acknowledged(max(entry.upto, bounds[number].first), entry.single) for number, entry in parsed.items()
    }


def _read_after(
    client: KafkaClient,
    source: DeadLetterSource,
    bounds: Mapping[int, Bounds],
    acknowledged: Mapping[int, Acknowledged],
    *,
    limit: int | None = None,
    seconds: float = READ_TIMEOUT_S,
) -> list[Message]:
    """Return at most `limit` unacknowledged records from the partitions in `bounds`.

    A partition without records after its acknowledged offset is not read. Raises RefusedError if a record on a
    consumer's topic is not a dead letter.
    """
    entries = {number: acknowledged.get(number, Acknowledged(bound.first)) for number, bound in bounds.items()}
    unread = {number: Bounds(entry.upto, bounds[number].end) for number, entry in entries.items()}
    messages: list[Message] = []

    def collect(message: Message) -> bool:
        source.require_dead_letter(message)
        if (message.offset() or 0) not in entries[message.partition() or 0]:
            messages.append(message)
        return len(messages) == limit

    read_records(client_settings(client.kafka), {source.name: unread}, collect, seconds=seconds)
    return messages


def _bounds_of(bounds: dict[int, Bounds], topic: DeadLetterSource, place: Place) -> Bounds:
    if place.partition not in bounds:
        raise RefusedError(f"topic {topic.name} has no partition {place.partition}", topic.list_hint)
    return bounds[place.partition]
