"""Dead letters whose key has no newer valid record, so that consumers have an older state."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from outbox_events.contract.source_sequence import Version
from outbox_kit.dead_letters import dead_letter_topic
from outbox_kit.dead_letters.dead_letter import DeadLetter
from outbox_kit.dead_letters.dead_letter_topic import StoredDeadLetter, dead_letter_queue
from outbox_kit.dead_letters.key_records import read_key_records, was_delivered_again
from outbox_kit.delivery.proof import first_versions, is_superseded
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.kafka.latest_records import LatestRecord, LatestRecords
from outbox_kit.pipeline import Pipeline


def list_stale(
    client: KafkaClient, pipeline: Pipeline, *, topic: str | None = None, list_all: bool = False
) -> list[DeadLetter]:
    """Return the stale ones among the dead letters that list_letters() returns.

    Dead letters of types that have no topic are not stale. Raises UnreachableError, RejectedError, WaitTimeoutError.
    """
    dead_letters = dead_letter_topic.read_dead_letters(client, pipeline, topic=topic, list_all=list_all)
    if not dead_letter_queue(pipeline, topic).of_connector:
        return _stale_of_consumer(client, dead_letters)
    every = dead_letter_topic.list_dead_letters(client, pipeline, list_all=True)
    return _stale_of_connector(client, pipeline, [entry.dead_letter for entry in dead_letters], first_versions(every))


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


def _stale_of_consumer(client: KafkaClient, dead_letters: Collection[StoredDeadLetter]) -> list[DeadLetter]:
    keys: dict[str, set[bytes]] = {}
    for entry in dead_letters:
        if entry.dead_letter.failed is not None and isinstance(key := entry.record.key(), bytes):
            keys.setdefault(entry.dead_letter.failed.topic, set()).add(key)
    names = client.describe(keys)
    records = {name: read_key_records(client, name, client.bounds(name), keys[name]) for name in names}
    return [
        dead_letter
        for dead_letter, key in ((entry.dead_letter, entry.record.key()) for entry in dead_letters)
        if dead_letter.failed is not None
        and isinstance(key, bytes)
        and not was_delivered_again(
            dead_letter, dead_letter.failed, records.get(dead_letter.failed.topic, {}).get(key, ())
        )
    ]
