"""Under which source epoch a topic was written last: what sinks hold new states against."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Message

from outbox_kit.kafka.topic_reader import read_each, text_headers
from outbox_kit.pipeline import Kafka

SEQUENCE = "source_sequence"
# docs/contract.md: 4 hex source epoch, then the position.
EPOCH_DIGITS = 4
# The end of a partition may hold only transaction markers: then more is read.
LAST_RECORDS = 100
WIDER = 100


def highest_epoch(kafka: Kafka, topic: str, bounds: Mapping[int, tuple[int, int]]) -> int:
    """The highest source epoch among the newest records of each partition, given its first and end offset.

    0 where no record carries one: they are not an OutboxRouter's. Raises UnreachableError, WaitTimeoutError.
    """
    highest, seen = 0, set[int]()

    def take(message: Message) -> None:
        nonlocal highest
        seen.add(message.partition() or 0)
        highest = max(highest, epoch_of(text_headers(message)))

    left, window = {number: (first, end) for number, (first, end) in bounds.items() if first < end}, LAST_RECORDS
    while left:
        starts = {number: max(first, end - window) for number, (first, end) in left.items()}
        read_each(kafka, topic, starts, take)
        left = {number: left[number] for number in left if number not in seen and starts[number] > left[number][0]}
        window *= WIDER
    return highest


def epoch_of(headers: Mapping[str, str]) -> int:
    """The source epoch that a record's headers carry; 0 without one."""
    try:
        return int(headers.get(SEQUENCE, "")[:EPOCH_DIGITS], 16)
    except ValueError:
        return 0
