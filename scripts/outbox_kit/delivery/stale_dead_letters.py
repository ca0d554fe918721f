"""Find stale dead letters, whose keys have no newer valid record, so that consumers have an older state."""

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
from outbox_kit.dead_letters.dead_letter_topic import DeadLetterTopic
from outbox_kit.delivery.proof import first_versions, is_superseded
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.client import KafkaClient, client_settings
from outbox_kit.kafka.latest_records import READ_TIMEOUT_S, LatestRecord, LatestRecords
from outbox_kit.pipeline import Pipeline


@dataclass(frozen=True)
class KeyRecord:
    """Position and identity of a record."""

    version: Version
    event_id: str
    place: Place

    def is_newer_than(self, dead_letter: DeadLetter, failed: FailedRecord) -> bool:
        """Return whether this record follows the failed record, by source_sequence if possible, else by offset.

        If neither decides, because the partitions differ and a sequence is missing, this record counts as newer.
        """
        if self.is_copy_of(dead_letter, failed):
            return False
        if self.version.is_ordered_by_sequence(dead_letter.version):
            return self.version > dead_letter.version
        return self.place.partition != failed.place.partition or self.place.offset > failed.place.offset

    def is_copy_of(self, dead_letter: DeadLetter, failed: FailedRecord) -> bool:
        """Return whether this record is the failed record, or another delivery of the failed record's event."""
        return self.place == failed.place or (bool(self.event_id) and self.event_id == dead_letter.event_id)


def read_key_records(
    client: KafkaClient, topic: str, bounds: Mapping[int, Bounds], keys: Collection[bytes]
) -> dict[bytes, list[KeyRecord]]:
    """Read the entire topic, and map each of `keys` to its records. Raises UnreachableError, WaitTimeoutError."""
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
    """Return whether one of `records` is newer than the failed record, or is a later delivery of the same event."""
    return any(
        record.is_newer_than(dead_letter, failed)
        or (record.is_copy_of(dead_letter, failed) and record.place.offset > failed.place.offset)
        for record in records
    )


def list_stale(deployment: Deployment, topic: DeadLetterTopic, *, list_all: bool) -> list[DeadLetter]:
    """Read dead letters with DeadLetterTopic.read(), and return only the stale ones.

    Dead letters of types that have no topic are not stale. Raises UnreachableError, RejectedError, WaitTimeoutError.
    """
    dead_letters = topic.read(list_all=list_all)
    if not topic.of_connector:
        return _stale_of_consumer(deployment.kafka, dead_letters)
    first = first_versions(topic.read(list_all=True))
    return _stale_of_connector(deployment.kafka, deployment.pipeline, dead_letters, first)


def _stale_of_connector(
    client: KafkaClient, pipeline: Pipeline, dead_letters: Collection[DeadLetter], first: Mapping[str, Version]
) -> list[DeadLetter]:
    latest: dict[str, dict[str, LatestRecord]] = {}
    for name in {dead_letter.aggregate_type for dead_letter in dead_letters} & pipeline.aggregates.keys():
        records = LatestRecords(client, pipeline.topic_of(name))
        records.read()
        latest[name] = records.by_key
    return [
        dead_letter
        for dead_letter in dead_letters
        if dead_letter.aggregate_type in latest
        and not is_superseded(dead_letter, latest[dead_letter.aggregate_type].get(dead_letter.key), first)
    ]


def _stale_of_consumer(client: KafkaClient, dead_letters: Collection[DeadLetter]) -> list[DeadLetter]:
    keys: dict[str, set[bytes]] = {}
    for dead_letter in dead_letters:
        if dead_letter.failed is not None and dead_letter.record_key is not None:
            keys.setdefault(dead_letter.failed.topic, set()).add(dead_letter.record_key)
    names = client.describe(keys)
    records = {name: read_key_records(client, name, client.bounds(name), keys[name]) for name in names}
    return [
        dead_letter
        for dead_letter in dead_letters
        if (failed := dead_letter.failed) is not None
        and (key := dead_letter.record_key) is not None
        and not was_delivered_again(dead_letter, failed, records.get(failed.topic, {}).get(key, ()))
    ]
