"""Highest source sequence in the last records of a topic. Sinks ignore a record with a lower one than its key's row."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Message

from outbox_events.kafka.record_headers import text_headers
from outbox_events.kafka.topic_reader import READ_TIMEOUT_S as TAIL_TIMEOUT_S
from outbox_events.kafka.topic_reader import read_records
from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.kafka.client import client_settings
from outbox_kit.kafka.latest_records import READ_TIMEOUT_S
from outbox_kit.pipeline import Kafka

SEQUENCE_HEADER = "source_sequence"
# A source sequence begins with the source epoch in 4 hexadecimal digits (docs/contract.md).
EPOCH_DIGITS = 4
MAX_EPOCH = 16**EPOCH_DIGITS - 1
# Number of offsets to read at the end of a partition. It is multiplied if they contain only transaction markers.
INITIAL_WINDOW = 100
WINDOW_FACTOR = 100


def highest_sequence(kafka: Kafka, topic: str, bounds: Mapping[int, Bounds], *, complete: bool = False) -> str:
    """Return the highest source sequence in the last records of each partition; empty if no record has one.

    With `complete`, every record is read. Raises UnreachableError, WaitTimeoutError.
    """
    highest, partitions_with_records = "", set[int]()

    def process(message: Message) -> None:
        nonlocal highest
        partitions_with_records.add(message.partition() or 0)
        sequence = text_headers(message).get(SEQUENCE_HEADER, "")
        highest = max(highest, sequence) if epoch_of(sequence) else highest

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


def epoch_of(sequence: str) -> int:
    """Return the source epoch in a source sequence; 0 if the text is empty or malformed."""
    try:
        return int(sequence[:EPOCH_DIGITS], 16)
    except ValueError:
        return 0
