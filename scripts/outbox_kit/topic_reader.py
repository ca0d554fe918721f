"""Reading of topics from given offsets to their end, with isolation level read_committed and without a commit.

The end of a partition is an offset that was requested before the reading. It is reached as soon as the position, which
markers of transactions and aborted records advance too, is at or after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition

from outbox_kit import topic_requests
from outbox_kit.errors import UnreachableError
from outbox_kit.topic_requests import REQUEST_S, Bounds
from outbox_kit.waiting import Observation, wait_for

BATCH = 1000
POLL_S = 0.2
READ_TIMEOUT_S = 60.0
READ_HINT = "check the name of the topic, the brokers, and the settings of the Kafka client"
READER_SETTINGS: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
}

Ranges = Mapping[str, Mapping[int, Bounds]]
"""Offsets to read, by topic and partition. They begin at `first` and end before `end`."""
Process = Callable[[Message], bool | None]


def read_bounds(
    settings: Mapping[str, Any], topics: Collection[str], level: IsolationLevel, *, seconds: float = REQUEST_S
) -> dict[str, dict[int, Bounds]]:
    """Return the bounds of every partition, by topic and number. `seconds` limits each request.

    With READ_COMMITTED the end is the last stable offset, and with READ_UNCOMMITTED it is behind the records of open
    transactions. Raises UnreachableError.
    """
    with _readable(topics):
        admin = topic_requests.admin_client(settings)
        try:
            described = topic_requests.describe(admin, topics, seconds)
            return {
                name: topic_requests.bounds(admin, name, numbers, level, seconds)
                for name, (_, numbers) in described.items()
            }
        except TimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


@contextmanager
def open_consumer(settings: Mapping[str, Any], starts: Mapping[str, Mapping[int, int]]) -> Iterator[Consumer]:
    """Open a consumer that begins at offsets by topic and partition. Its errors are raised as UnreachableError."""
    with _readable(starts):
        consumer = Consumer(
            {
                "group.id": "outbox-kit-reader",
                **settings,
                **READER_SETTINGS,
                "auto.offset.reset": "earliest",  # the first records can have been deleted since the request
                "fetch.wait.max.ms": 20,  # otherwise the end of an idle partition is reported after half a second
            }
        )
        try:
            places = [(topic, *start) for topic, offsets in starts.items() for start in offsets.items()]
            consumer.assign([TopicPartition(*place) for place in places])
            yield consumer
        finally:
            consumer.close()


def read_records(
    settings: Mapping[str, Any],
    ranges: Ranges,
    process: Process,
    *,
    seconds: float = READ_TIMEOUT_S,
    is_idle_limit: bool = False,
    limit: int | None = None,
    hint: str = "",
) -> set[tuple[str, int]]:
    """Call `process` with every committed record in the ranges, until it returns True.

    Read at most `limit` records of each partition; return topic and number of those that have more offsets. Raises
    UnreachableError, and WaitTimeoutError with `hint` after `seconds`, or with `is_idle_limit` after `seconds` without
    progress.
    """
    reading = _Reading(ranges, process, limit)
    if not reading.unread:
        return set()
    with open_consumer(settings, reading.starts) as consumer:

        def poll() -> Observation[bool]:
            has_progress = reading.read(consumer)
            return Observation(not reading.unread or (is_idle_limit and has_progress) or None, reading.text)

        while reading.unread:
            wait_for(f"the end of topic {_names(ranges)}", poll, seconds=seconds, interval=0, hint=hint)
    return reading.limited


def read_record(settings: Mapping[str, Any], topic: str, partition: int, offset: int) -> Message | None:
    """Return the committed record at an offset before the end, or None if there is no such record.

    Raises UnreachableError, and WaitTimeoutError.
    """
    messages: list[Message] = []
    read_records(settings, {topic: {partition: Bounds(offset, offset + 1)}}, messages.append)
    return messages[0] if messages else None


class _Reading:
    """Reads ranges. Partitions whose end is reached are removed from `unread`, and their further records are ignored.

    `limited` are those with unread offsets after `limit` records.
    """

    def __init__(self, ranges: Ranges, process: Process, limit: int | None) -> None:
        self._process = process
        self._limit = limit
        self._counts = Counter[tuple[str, int]]()
        unread = {(topic, n): b for topic, bounds in ranges.items() for n, b in bounds.items() if b.first < b.end}
        self.starts: dict[str, dict[int, int]] = {topic: {} for topic, _ in unread}
        for (topic, number), bounds in unread.items():
            self.starts[topic][number] = bounds.first
        self.unread = {partition: bounds.end for partition, bounds in unread.items()}
        self.limited = set[tuple[str, int]]()

    @property
    def text(self) -> str:
        return f"{self._counts.total()} records, unread partitions {sorted(self.unread)}"

    def read(self, consumer: Consumer) -> bool:
        """Process what has arrived. Return whether it belongs to an unread partition. Raises KafkaException."""
        first = consumer.poll(POLL_S)
        # A call of consume() with a time limit would wait until the batch is full.
        messages = [] if first is None else [first, *consumer.consume(BATCH - 1, timeout=0)]
        has_progress = False
        for message in messages:
            has_progress |= self._take(consumer, message)
        return has_progress

    def _take(self, consumer: Consumer, message: Message) -> bool:
        is_record = not _is_end(message)
        partition, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
        end = self.unread.get(partition)
        if end is None:
            return False
        # The end of the log is reported with the offset of the next record.
        is_read = offset + is_record >= end
        if is_record and offset < end:
            self._counts[partition] += 1
            if self._process(message):
                self.unread.clear()
            elif self._counts[partition] == self._limit and not is_read:
                self.limited.add(partition)
                is_read = True
        if is_read and self.unread.pop(partition, None) is not None:
            consumer.pause([TopicPartition(*partition)])
        return True


def _is_end(message: Message) -> bool:
    """Return whether a polled message is the end of a partition instead of a record. Raises KafkaException."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    return error is not None


def _names(topics: Collection[str]) -> str:
    return ", ".join(sorted(topics))


@contextmanager
def _readable(topics: Collection[str]) -> Iterator[None]:
    """Translate the errors of requests and of a consumer."""
    try:
        yield
    except KafkaException as error:
        raise UnreachableError(f"cannot read topic {_names(topics)}: {error.args[0].str()}", READ_HINT) from None
