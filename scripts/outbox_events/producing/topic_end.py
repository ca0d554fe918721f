"""Reading of topics to their end with isolation level read_committed, as proof of what was delivered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from outbox_events.errors import UnreachableError
from outbox_events.kafka.record_headers import header_pairs
from outbox_events.producing.stored_record import EVENT_ID_HEADER
from outbox_events.waiting import Deadline, Observation, wait_for

POLL_S = 0.2
BATCH = 1000
READ_S = 120.0
"""Default time limit without a new record. A broker ends open transactions after transaction.timeout.ms, by default
less than this."""
READ_TOPIC_HINT = "check the topic and the settings of the consumer"

Ends = dict[tuple[str, int], int]


def delivered_event_ids(
    settings: Mapping[str, Any], topics: Iterable[str], wanted: Iterable[str], *, seconds: float = READ_S
) -> set[str]:
    """Return which of the `wanted` event ids have a committed record in the topics.

    The topics are read from their beginning to the end at the time of the call, including records of transactions
    that are open at that time: the function waits until they end. Otherwise a committed record behind an open
    transaction would be missed. The reading ends earlier if all ids are found. Raises WaitTimeoutError after `seconds`
    without a new record, and UnreachableError.
    """
    names, searched, found = sorted(set(topics)), set(wanted), set[str]()
    if not searched:
        return found
    try:
        ends = _ends(settings, names, Deadline(seconds))
        consumer = Consumer(_settings(settings, "read_committed"))
        try:
            _read(consumer, ends, searched, found, seconds)
        finally:
            consumer.close()
    except KafkaException as error:
        raise UnreachableError(f"cannot read {', '.join(names)}: {error.args[0].str()}", READ_TOPIC_HINT) from error
    return found


def message_event_id(message: Message) -> str | None:
    """Return the event id in the headers of a record, or None."""
    values = [value for name, value in header_pairs(message) if name == EVENT_ID_HEADER and isinstance(value, bytes)]
    return values[0].decode(errors="replace") if values else None


def _settings(settings: Mapping[str, Any], isolation_level: str) -> dict[str, Any]:
    return {
        "group.id": "outbox-kit-delivery-proof",
        **settings,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 20,  # otherwise the end of an idle partition is reported after half a second
        "isolation.level": isolation_level,
    }


def _ends(settings: Mapping[str, Any], topics: list[str], deadline: Deadline) -> Ends:
    """Return the end of each partition, behind the records of open transactions."""
    consumer = Consumer(_settings(settings, "read_uncommitted"))
    ends: Ends = {}
    try:
        for topic in topics:
            metadata = consumer.list_topics(topic, timeout=deadline.seconds_left).topics[topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            for number in metadata.partitions:
                partition = TopicPartition(topic, number)
                first, end = consumer.get_watermark_offsets(partition, timeout=deadline.seconds_left)
                if end > first:
                    ends[topic, number] = end
    finally:
        consumer.close()
    return ends


def _read(consumer: Consumer, ends: Ends, wanted: set[str], found: set[str], seconds: float) -> None:
    """Add what is found, until all wanted ids are or the ends are reached. Each batch has its own time limit."""
    unread = dict(ends)
    positions = dict.fromkeys(ends, -1)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in ends])

    def poll() -> Observation[bool]:
        before = sum(positions.values())
        for message in _next_messages(consumer):
            partition = message.topic() or "", message.partition() or 0
            # At the end of a partition, the offset is that of the next record; markers of transactions have offsets.
            positions[partition] = (message.offset() or 0) + (0 if _is_end(message) else 1)
            if not _is_end(message) and (event_id := message_event_id(message)) in wanted:
                found.add(str(event_id))
            if positions[partition] >= ends[partition]:
                unread.pop(partition, None)
        text = f"{len(found)} of {len(wanted)} records, unread {sorted(unread)}"
        return Observation(sum(positions.values()) > before or None, text)

    hint = "a transaction of another producer may be open: wait for its transaction.timeout.ms"
    while unread and found != wanted:
        wait_for("the next records of the topics", poll, seconds=seconds, interval=0, hint=hint)


def _next_messages(consumer: Consumer) -> list[Message]:
    """Return what the consumer has received. The call with a timeout would wait until the batch is full."""
    first = consumer.poll(POLL_S)
    return [] if first is None else [first, *consumer.consume(BATCH - 1, timeout=0)]


def _is_end(message: Message) -> bool:
    """Return whether a polled message is the end of a partition. Raises KafkaException."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    return error is not None
