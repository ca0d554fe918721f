"""Find the highest version of a topic's last records. Sinks ignore a record if the key's row has a higher version."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Message

from outbox_events.contract.source_sequence import UNVERSIONED, Version, version_of
from outbox_events.kafka.record import text_headers
from outbox_events.kafka.topic_reader import READ_TIMEOUT_S as TAIL_TIMEOUT_S
from outbox_events.kafka.topic_reader import read_records
from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.kafka.client import client_settings
from outbox_kit.kafka.latest_records import READ_TIMEOUT_S
from outbox_kit.pipeline import Kafka

# Number of offsets to read at the end of a partition. The number is increased if it finds only transaction markers.
INITIAL_WINDOW = 100
WINDOW_FACTOR = 100


def highest_version(kafka: Kafka, topic: str, bounds: Mapping[int, Bounds], *, complete: bool = False) -> Version:
    """Return the highest version of the partitions' last records, or UNVERSIONED if they have no source epoch.

    If `complete` is true, all records are read. Raises UnreachableError and WaitTimeoutError.
    """
    highest, partitions_with_records = UNVERSIONED, set[int]()

    def process(message: Message) -> None:
        nonlocal highest
        partitions_with_records.add(message.partition() or 0)
        version = version_of(text_headers(message))
        highest = max(highest, version) if version.source_epoch else highest

    unread_partitions = {number: bound for number, bound in bounds.items() if bound.first < bound.end}
    window = max((bound.end for bound in bounds.values()), default=0) if complete else INITIAL_WINDOW
    seconds = READ_TIMEOUT_S if complete else TAIL_TIMEOUT_S
    while unread_partitions:
        tails = {
            number: Bounds(max(bound.first, bound.end - window), bound.end)
            for number, bound in unread_partitions.items()
        }
        read_records(client_settings(kafka), {topic: tails}, process, seconds=seconds)
        unread_partitions = {
            number: bound
            for number, bound in unread_partitions.items()
            if number not in partitions_with_records and tails[number].first > bound.first
        }
        window *= WINDOW_FACTOR
    return highest
