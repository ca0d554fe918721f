"""Replay consumers' dead letters: send each record again to the topic and partition in which it failed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Message

from outbox_events.contract.dead_letter_headers import CONSUMER_HEADERS
from outbox_events.errors import RefusedError, UnreachableError
from outbox_events.kafka.record import Record, header_pairs
from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.dead_letters.dead_letter import DeadLetter, FailedRecord
from outbox_kit.delivery.stale_dead_letters import KeyRecord, read_key_records
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.client import KafkaClient, send_records

DROP_HINT = "drop the dead letter with `outbox dead-letter drop PARTITION/OFFSET`"


@dataclass
class Replay:
    """Result of a replay: dead letters that were sent again and acknowledged, and those that were refused."""

    replayed: list[DeadLetter] = field(default_factory=list)
    refused: list[tuple[DeadLetter, RefusedError]] = field(default_factory=list)


@dataclass(frozen=True)
class _Destination:
    """Topic to which records are sent. If it is compacted, `records` has its records under the dead letters' keys."""

    name: str
    bounds: Mapping[int, Bounds]
    records: Mapping[bytes, list[KeyRecord]] | None


def replay_records(deployment: Deployment, topic: str, dead_letters: Collection[DeadLetter]) -> Replay:
    """Send the dead letters' records again, then acknowledge the dead letters. A crash in between can repeat records.

    A record is refused if its topic belongs to another pipeline, or is compacted and has a newer record with the same
    key. Raises RefusedError, UnreachableError, RejectedError.
    """
    client, source, records = deployment.kafka, deployment.dead_letters(topic), list[Record]()
    result = Replay(refused=[*source.foreign(dead_letters)])
    foreign = {dead_letter.place for dead_letter, _ in result.refused}
    own = {dl: dl.failed for dl in dead_letters if dl.failed is not None and dl.place not in foreign}
    destinations = _destinations(client, own)
    for dead_letter, failed in own.items():
        try:
            records.append(_checked_record(topic, dead_letter, failed, destinations))
            result.replayed.append(dead_letter)
        except RefusedError as error:
            result.refused.append((dead_letter, error))
    if records:
        _send(client, records)
    places = [dead_letter.place for dead_letter in result.replayed]
    source.acknowledge_places(places)
    return result


def _destinations(client: KafkaClient, dead_letters: Mapping[DeadLetter, FailedRecord]) -> dict[str, _Destination]:
    keys: dict[str, set[bytes]] = {}
    for dead_letter, failed in dead_letters.items():
        key = dead_letter.record_key
        keys.setdefault(failed.topic, set()).update([] if key is None else [key])
    found = client.describe(keys)
    result = {}
    for name in found:
        bounds = client.bounds(name)
        is_compacted = "compact" in found[name].config.get("cleanup.policy", "")
        records = read_key_records(client, name, bounds, keys[name]) if is_compacted else None
        result[name] = _Destination(name, bounds, records)
    return result


def _checked_record(
    topic: str, dead_letter: DeadLetter, failed: FailedRecord, destinations: Mapping[str, _Destination]
) -> Record:
    """Return the record to send. Raises RefusedError."""
    key = dead_letter.record_key
    destination = destinations.get(failed.topic)
    if destination is None or failed.place.partition not in destination.bounds:
        message = f"{dead_letter.place}: topic {failed.topic} has no partition {failed.place.partition}"
        raise RefusedError(message, f"create the topic with its partitions, or {_drop_hint(topic, dead_letter)}")
    if destination.records is not None and key is not None:
        _refuse_older(topic, dead_letter, failed, destination.records[key])
    headers = original_headers(dead_letter.record)
    return Record(failed.topic, key, dead_letter.value, headers, failed.place.partition)


def _refuse_older(topic: str, dead_letter: DeadLetter, failed: FailedRecord, records: Iterable[KeyRecord]) -> None:
    newer = next((record for record in records if record.is_newer_than(dead_letter, failed)), None)
    if newer is not None:
        raise RefusedError(
            f"{dead_letter.place}: topic {failed.topic} is compacted and has a newer record of key "
            f"{dead_letter.key} at {newer.place}, which the replayed record would replace",
            _drop_hint(topic, dead_letter),
        )


def _drop_hint(topic: str, dead_letter: DeadLetter) -> str:
    return f"drop the dead letter with `outbox dead-letter drop {dead_letter.place} --topic {topic}`"


def original_headers(record: Message) -> tuple[tuple[str, bytes], ...]:
    """Return the headers that the failed record had, without those that the consumer added."""
    return tuple((name, value) for name, value in header_pairs(record) if name not in CONSUMER_HEADERS)  # type: ignore[misc]


def _send(client: KafkaClient, records: Collection[Record]) -> None:
    """Send the records and wait until each is confirmed. Raises UnreachableError."""
    try:
        send_records(client.kafka, records)
    except UnreachableError as error:
        message = f"{error.message}; no dead letter was acknowledged, so the next replay can repeat delivered records"
        raise UnreachableError(message, error.hint) from error
