"""Highest source epoch in the last records of a topic. Sinks ignore records with a lower epoch."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Message

from outbox_kit.kafka.client import Bounds
from outbox_kit.kafka.topic_reader import read_records, text_headers
from outbox_kit.pipeline import Kafka

SEQUENCE_HEADER = "source_sequence"
# docs/contract.md: the source epoch in 4 hexadecimal digits, then LSNs.
EPOCH_DIGITS = 4
# Number of offsets to read at the end of a partition, and its growth if they contain only transaction markers.
LAST_RECORDS = 100
WINDOW_FACTOR = 100


def highest_epoch(kafka: Kafka, topic: str, bounds: Mapping[int, Bounds]) -> int:
    """Return the highest source epoch in the last records of each partition; 0 if no record has one.

    Raises UnreachableError, WaitTimeoutError.
    """
    highest, partitions_read = 0, set[int]()

    def process(message: Message) -> None:
        nonlocal highest
        partitions_read.add(message.partition() or 0)
        highest = max(highest, epoch_of(text_headers(message)))

    unread_partitions = {number: bound for number, bound in bounds.items() if bound.first < bound.end}
    window = LAST_RECORDS
    while unread_partitions:
        starts = {number: max(bound.first, bound.end - window) for number, bound in unread_partitions.items()}
        read_records(kafka, topic, starts, process)
        unread_partitions = {
            number: bound
            for number, bound in unread_partitions.items()
            if number not in partitions_read and starts[number] > bound.first
        }
        window *= WINDOW_FACTOR
    return highest


def epoch_of(headers: Mapping[str, str]) -> int:
    """Return the source epoch in the headers of a record, 0 if there is none."""
    try:
        return int(headers.get(SEQUENCE_HEADER, "")[:EPOCH_DIGITS], 16)
    except ValueError:
        return 0
