"""List, count, show and acknowledge the dead letters of the connector or of a consumer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial

from confluent_kafka import Message

from outbox_events.errors import RefusedError
from outbox_events.kafka.topic_reader import READ_TIMEOUT_S, read_record, read_records
from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.dead_letters.acknowledgements import Acknowledged, Acknowledgements
from outbox_kit.dead_letters.dead_letter import DeadLetter, Place, is_dead_letter, parse_dead_letter
from outbox_kit.dead_letters.topic_owner import SUFFIX, owner_of
from outbox_kit.kafka.client import KafkaClient, client_settings


@dataclass(frozen=True)
class DeadLetterTopic:
    """Dead letter topic of the connector, or of a consumer. `acknowledgement_topic` stores what is acknowledged.

    Methods raise UnreachableError, RejectedError, and WaitTimeoutError after `seconds`.
    """

    client: KafkaClient
    name: str
    acknowledgement_topic: str
    of_connector: bool

    @property
    def option(self) -> str:
        """Command-line option that selects this topic, preceded by a space; empty for the connector's topic."""
        return "" if self.of_connector else f" --topic {self.name}"

    @property
    def list_hint(self) -> str:
        """Hint to run the command that lists all dead letters of this topic."""
        return f"run `outbox dead-letter list --all{self.option}`"

    def read(
        self, *, list_all: bool = False, limit: int | None = None, seconds: float = READ_TIMEOUT_S
    ) -> list[DeadLetter]:
        """Return at most `limit` unacknowledged dead letters, or all if `list_all` is set, from oldest to newest."""
        acknowledged, bounds = self._acknowledged()
        messages = self._read_after(bounds, {} if list_all else acknowledged, limit=limit, seconds=seconds)
        return sorted(map(parse_dead_letter, messages), key=lambda dead_letter: (dead_letter.time, dead_letter.place))

    def count(self) -> int:
        """Return the number of unacknowledged dead letters."""
        return self.count_with_removed()[0]

    def count_with_removed(self, *, limit: int | None = None, seconds: float = READ_TIMEOUT_S) -> tuple[int, int]:
        """Return count(), but `limit` at most, and how many offsets were removed before they were acknowledged."""
        acknowledged, bounds = self._acknowledged()
        messages = self._read_after(bounds, acknowledged, limit=limit, seconds=seconds)
        return len(messages), sum(_removed(acknowledged, bounds).values())

    def removed_offsets(self) -> dict[Place, int]:
        """Count the offsets that retention or a client removed before they were acknowledged.

        Return a mapping from the last removed place of a partition to the number of these offsets in the partition.
        """
        return _removed(*self._acknowledged())

    def read_one(self, place: Place) -> DeadLetter:
        """Return the dead letter at `place`. Raises RefusedError if `place` has no dead letter."""
        bound = self._bounds_of(self.client.bounds(self.name), place)
        message = None
        if bound.first <= place.offset < bound.end:
            message = read_record(client_settings(self.client.kafka), self.name, place.partition, place.offset)
        if message is None:
            text = f"topic {self.name} has no dead letter at {place} (PARTITION/OFFSET)"
            raise RefusedError(text, self.list_hint)
        self._require_dead_letter(message)
        return parse_dead_letter(message)

    def acknowledge(self, upto: Place | None = None) -> int:
        """Acknowledge all dead letters, or one partition's up to and including `upto`. Return their number.

        Records are not deleted, and acknowledged offsets are not lowered. Raises RefusedError if `upto` is after the
        end.
        """
        self._refuse_other_pipeline()
        acknowledged, bounds = self._acknowledged()
        if upto is not None:
            if upto.offset >= self._bounds_of(bounds, upto).end:
                message = f"topic {self.name} has no record at {upto} (PARTITION/OFFSET) yet"
                raise RefusedError(message, self.list_hint)
            bounds = {upto.partition: bounds[upto.partition]}
        return self._acknowledge(
            acknowledged, bounds, lambda place: upto is None or place.offset <= upto.offset, with_removed=True
        )

    def acknowledge_places(self, places: Collection[Place]) -> int:
        """Acknowledge single dead letters, and return how many of them were not acknowledged before."""
        self._refuse_other_pipeline()
        acknowledged, all_bounds = self._acknowledged()
        bounds = {place.partition: all_bounds[place.partition] for place in places}
        return self._acknowledge(acknowledged, bounds, places.__contains__, with_removed=False)

    def purge(self) -> int:
        """Delete each partition's records before the first unacknowledged one. Return the number of deleted offsets.

        Raises RefusedError if one of them belongs to another pipeline.
        """
        self._refuse_other_pipeline()
        acknowledged, bounds = self._acknowledged()
        offsets = {number: entry.upto for number, entry in acknowledged.items()}
        deleted = {number: offset for number, offset in offsets.items() if offset > bounds[number].first}
        if deleted:
            if not self.of_connector:
                ranges = {number: Bounds(bounds[number].first, offset) for number, offset in deleted.items()}
                self._require_own(map(parse_dead_letter, self._read_after(ranges, {})))
            self.client.delete_records(self.name, deleted)
        return sum(offset - bounds[number].first for number, offset in deleted.items())

    def foreign(self, dead_letters: Iterable[DeadLetter]) -> Iterator[tuple[DeadLetter, RefusedError]]:
        """Yield the dead letters of a consumer whose records are of a topic of another pipeline, with the reason.

        A dead letter that does not name its record, such as one of a connector, can be of any pipeline.
        """
        if self.of_connector:
            return
        own_prefix = self.acknowledgement_topic.removesuffix(SUFFIX)
        existing_topics = [*self.client.topics(), self.acknowledgement_topic]
        owner = cache(partial(owner_of, existing_topics=existing_topics))
        for dead_letter in dead_letters:
            text = f"dead letter {dead_letter.place} of topic {self.name}"
            if dead_letter.failed is None:
                message = f"{text} does not name the topic of its record, so its pipeline is unknown"
                yield dead_letter, RefusedError(message, "if it is of a connector, select its pipeline with -p")
            elif (prefix := owner(dead_letter.failed.topic)) not in (own_prefix, None):
                topic = dead_letter.failed.topic
                message = f"{text} is of topic {topic}, which belongs to the pipeline with prefix {prefix}"
                yield dead_letter, RefusedError(message, "run the command with that pipeline (-p)")

    def _require_own(self, dead_letters: Iterable[DeadLetter]) -> None:
        for _, error in self.foreign(dead_letters):
            raise error

    def _acknowledge(
        self,
        acknowledged: Mapping[int, Acknowledged],
        bounds: Mapping[int, Bounds],
        is_selected: Callable[[Place], bool],
        *,
        with_removed: bool,
    ) -> int:
        """Acknowledge the selected dead letters in the partitions of `bounds`, and return their number.

        Raises RefusedError if a selected dead letter belongs to another pipeline.
        Unless `with_removed` is set, offsets that were removed before they were acknowledged remain unacknowledged.
        """
        dead_letters = {entry.place: entry for entry in map(parse_dead_letter, self._read_after(bounds, acknowledged))}
        places = set(dead_letters)
        selected = set(filter(is_selected, places))
        self._require_own(dead_letters[place] for place in sorted(selected))
        changed = {}
        for number, bound in bounds.items():
            added, others = (
                [place.offset for place in group if place.partition == number]
                for group in (selected, places - selected)
            )
            if not with_removed and acknowledged[number].count_below(bound.first):
                others.append(acknowledged[number].upto)
            entry = acknowledged[number].add(added, others, bound.end)
            if entry != acknowledged[number]:
                changed[number] = entry
        if changed:
            self._acknowledgements().write(changed)
        return len(selected)

    def _acknowledgements(self) -> Acknowledgements:
        return Acknowledgements(self.client, self.acknowledgement_topic, self.name)

    def _acknowledged(self) -> tuple[dict[int, Acknowledged], dict[int, Bounds]]:
        """Return the acknowledged offsets and the bounds of each partition.

        Acknowledged offsets beyond the end are ignored, because they would hide dead letters. They can occur if the
        cluster does not assign ids to topics, and the topic was created again.
        """
        found = self._acknowledgements().read()
        bounds = self.client.bounds(self.name)  # later than the acknowledged offsets, which it must not be below
        entries = {number: found.get(number, Acknowledged()) for number in bounds}
        return {n: Acknowledged() if entries[n].upto > bounds[n].end else entries[n] for n in bounds}, bounds

    def _read_after(
        self,
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
        entries = {number: acknowledged.get(number, Acknowledged()) for number in bounds}
        unread = {n: Bounds(max(entry.upto, bounds[n].first), bounds[n].end) for n, entry in entries.items()}
        messages: list[Message] = []

        def collect(message: Message) -> bool:
            self._require_dead_letter(message)
            if (message.offset() or 0) not in entries[message.partition() or 0]:
                messages.append(message)
            return len(messages) == limit

        read_records(client_settings(self.client.kafka), {self.name: unread}, collect, seconds=seconds)
        return messages

    def _bounds_of(self, bounds: dict[int, Bounds], place: Place) -> Bounds:
        if place.partition not in bounds:
            raise RefusedError(f"topic {self.name} has no partition {place.partition}", self.list_hint)
        return bounds[place.partition]

    def _refuse_other_pipeline(self) -> None:
        """Raise RefusedError if another pipeline stores acknowledgements of the topic."""
        if not self.of_connector and f"{self.name}.acknowledged" in self.client.topics():
            raise RefusedError(
                f"topic {self.name} is the dead letter topic of another pipeline", "select this pipeline with -p"
            )

    def _require_dead_letter(self, record: Message) -> None:
        """Raise RefusedError if this is a consumer's topic and the record is not a dead letter."""
        if not self.of_connector and not is_dead_letter(record):
            place = f"{record.partition()}/{record.offset()}"
            message = f"topic {self.name} is not a dead letter topic: its record {place} is not a dead letter"
            raise RefusedError(message, "give --topic the name of a consumer's dead letter topic")


def _removed(acknowledged: Mapping[int, Acknowledged], bounds: Mapping[int, Bounds]) -> dict[Place, int]:
    counts = {n: acknowledged[n].count_below(bound.first) for n, bound in bounds.items()}
    return {Place(n, bounds[n].first - 1): number for n, number in counts.items() if number}
