"""Read topics from given offsets to their end, by default with read_committed, and without committing offsets.

The end offset of each partition is requested before reading begins. The end is reached when the consumer's position is
at or after this offset. Transaction markers and aborted records also advance the position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition

from outbox_events.kafka import topic_requests
from outbox_events.kafka.offsets import source_of
from outbox_events.kafka.topic_requests import REQUEST_S, Bounds, unreadable
from outbox_events.waiting import Observation, wait_for

BATCH = 1000
POLL_S = 0.2
READ_TIMEOUT_S = 60.0
READER_SETTINGS: dict[str, Any] = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
}
REPORT_END = {"enable.partition.eof": True}  # the consumer reports the end of a partition as an error

Partition = tuple[str, int]
Process = Callable[[Message], bool | None]


def missing_topics(settings: Mapping[str, Any], topics: Collection[str], *, seconds: float = REQUEST_S) -> set[str]:
    """Return those topics that do not exist, or that the client may not describe. Raises UnreachableError."""
    with _readable(topics):
        return set(topics) - topic_requests.admin_client(settings).list_topics(timeout=seconds).topics.keys()


def read_bounds(
    settings: Mapping[str, Any],
    topics: Collection[str],
    level: IsolationLevel,
    *,
    seconds: float = REQUEST_S,
    since: float | None = None,
) -> dict[str, dict[int, Bounds]]:
    """Return a mapping from topic and partition number to the bounds since a Unix time. `seconds` limits each request.

    With READ_COMMITTED, the end is the last stable offset. With READ_UNCOMMITTED, the end is the high watermark, which
    includes records of open transactions. Raises UnreachableError.
    """
    with _readable(topics):
        admin = topic_requests.admin_client(settings)
        try:
            described = topic_requests.describe(admin, topics, seconds)
            numbers = {name: partitions for name, (_, partitions) in described.items()}
            return topic_requests.bounds_of_topics(admin, numbers, level, seconds, since=since)
        except TimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


@contextmanager
def open_consumer(
    settings: Mapping[str, Any], starts: Mapping[Partition, int], isolation_level: str = "read_committed"
) -> Iterator[Consumer]:
    """Open a consumer that begins at the offsets `starts`. Its errors are raised as UnreachableError."""
    with _readable({topic for topic, _ in starts}):
        consumer = Consumer(
            {
                "group.id": "outbox-reader",
                **settings,
                **READER_SETTINGS,
                "isolation.level": isolation_level,
                "auto.offset.reset": "earliest",  # the first records might have been deleted since the request
                "fetch.wait.max.ms": 20,  # by default, the end of an idle partition is reported after 0.5 s
            }
        )
        try:
            consumer.assign([TopicPartition(*partition, offset) for partition, offset in starts.items()])
            yield consumer
        finally:
            consumer.close()


def read_records(
    settings: Mapping[str, Any],
    ranges: Mapping[str, Mapping[int, Bounds]],
    process: Process,
    *,
    seconds: float = READ_TIMEOUT_S,
    is_idle_limit: bool = False,
    limit: int | None = None,
    hint: str = "",
    isolation_level: str = "read_committed",
) -> set[Partition]:
    """Call `process` for each committed record from `first` up to, but not including, `end`. If it returns True, stop.

    With the `isolation_level` read_uncommitted, records of open and aborted transactions are included.
    `ranges` maps topic and partition number to bounds. Read at most `limit` records per partition, and return the
    partitions that have unread offsets. Raises UnreachableError. Raises WaitTimeoutError with `hint` after `seconds`
    or, if `is_idle_limit` is set, after `seconds` without progress.
    """
    places = [(topic, number, bounds) for topic, by_number in ranges.items() for number, bounds in by_number.items()]
    starts = {(topic, number): bounds.first for topic, number, bounds in places if bounds.first < bounds.end}
    if not starts:
        return set()
    reading = _Reading({(topic, number): ranges[topic][number].end for topic, number in starts}, process, limit)
    with open_consumer({**settings, **REPORT_END}, starts, isolation_level) as consumer:

        def poll() -> Observation[bool]:
            has_progress = reading.read(consumer)
            return Observation(not reading.unread or (is_idle_limit and has_progress) or None, reading.text)

        while reading.unread:
            wait_for(f"the end of topic {_names(ranges)}", poll, seconds=seconds, interval=0, hint=hint)
    return reading.limited


def read_record(settings: Mapping[str, Any], topic: str, partition: int, offset: int) -> Message | None:
    """Return the committed record at `offset`, or None if no committed record has this offset.

    `offset` must be before the end of the partition. Raises UnreachableError and WaitTimeoutError.
    """
    messages: list[Message] = []
    read_records(settings, {topic: {partition: Bounds(offset, offset + 1)}}, messages.append)
    return messages[0] if messages else None


@dataclass
class _Reading:
    """Progress of a read. `unread` contains the ends that are not reached yet. Other partitions are ignored.

    `limited` contains the partitions that have unread offsets after their first `limit` records.
    """

    unread: dict[Partition, int]
    process: Process
    limit: int | None
    counts: Counter[Partition] = field(default_factory=Counter)
    limited: set[Partition] = field(default_factory=set)

    @property
    def text(self) -> str:
        return f"{self.counts.total()} records, unread partitions {sorted(self.unread)}"

    def read(self, consumer: Consumer) -> bool:
        """Process new messages. Return whether any of them is from an unread partition. Raises KafkaException."""
        first = consumer.poll(POLL_S)
        # With a time limit, consume() would wait until the batch is full.
        messages = [] if first is None else [first, *consumer.consume(BATCH - 1, timeout=0)]
        return sum([self._take(consumer, message) for message in messages]) > 0

    def _take(self, consumer: Consumer, message: Message) -> bool:
        is_record = not _is_end(message)
        partition, offset = source_of(message), message.offset() or 0
        end = self.unread.get(partition)
        if end is None:
            return False
        # The message for the end of a partition has the offset of the next record.
        is_read = offset + is_record >= end
        if is_record and offset < end:
            self.counts[partition] += 1
            if self.process(message):
                self.unread.clear()
            elif self.counts[partition] == self.limit and not is_read:
                self.limited.add(partition)
                is_read = True
        if is_read and self.unread.pop(partition, None) is not None:
            consumer.pause([TopicPartition(*partition)])
        return True


def _is_end(message: Message) -> bool:
    """Return whether a polled message reports the end of a partition. Raises KafkaException."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    return error is not None


def _names(topics: Collection[str]) -> str:
    return ", ".join(sorted(topics))


@contextmanager
def _readable(topics: Collection[str]) -> Iterator[None]:
    """Raise errors of requests and consumers as UnreachableError."""
    try:
        yield
    except KafkaException as error:
        raise unreadable(_names(topics), error.args[0]) from None
