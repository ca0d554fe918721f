"""Records of some keys of a topic, and whether one of them is newer than a record that a consumer could not handle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Message

from outbox_events.contract.headers import EVENT_ID
from outbox_events.contract.source_sequence import Version, version_of
from outbox_events.kafka.record import text_headers
from outbox_events.kafka.topic_reader import read_records
from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.dead_letters.dead_letter import DeadLetter, FailedRecord, Place
from outbox_kit.kafka.client import KafkaClient, client_settings
from outbox_kit.kafka.latest_records import READ_TIMEOUT_S


@dataclass(frozen=True)
class KeyRecord:
    """Position and identity of a record."""

    version: Version
    event_id: str
    place: Place

    def is_newer_than(self, dead_letter: DeadLetter, failed: FailedRecord) -> bool:
        """Return whether the record orders after the failed one: by source_sequence, otherwise by offset.

        Records without a sequence in different partitions have no order: the record then counts as newer.
        """
        if self.is_copy_of(dead_letter, failed):
            return False
        if self.version.is_ordered_by_sequence(dead_letter.version):
            return self.version > dead_letter.version
        return self.place.partition != failed.place.partition or self.place.offset > failed.place.offset

    def is_copy_of(self, dead_letter: DeadLetter, failed: FailedRecord) -> bool:
        """Return whether this is the failed record or another delivery of its event."""
        return self.place == failed.place or (bool(self.event_id) and self.event_id == dead_letter.event_id)


def read_key_records(
    client: KafkaClient, topic: str, bounds: Mapping[int, Bounds], keys: Collection[bytes]
) -> dict[bytes, list[KeyRecord]]:
    """Return the records of `keys` by key; the entire topic is read. Raises UnreachableError, WaitTimeoutError."""
    found: dict[bytes, list[KeyRecord]] = {key: [] for key in keys}

    def add(message: Message) -> None:
        key = message.key()
        if isinstance(key, bytes) and key in found:
            headers = text_headers(message)
            place = Place(message.partition() or 0, message.offset() or 0)
            found[key].append(KeyRecord(version_of(headers), headers.get(EVENT_ID, ""), place))

    read_records(client_settings(client.kafka), {topic: bounds}, add, seconds=READ_TIMEOUT_S)
    return found


def was_delivered_again(dead_letter: DeadLetter, failed: FailedRecord, records: Iterable[KeyRecord]) -> bool:
    """Return whether a record is newer than the failed one, or another delivery of its event after it."""
    return any(
        record.is_newer_than(dead_letter, failed)
        or (record.is_copy_of(dead_letter, failed) and record.place.offset > failed.place.offset)
        for record in records
    )
