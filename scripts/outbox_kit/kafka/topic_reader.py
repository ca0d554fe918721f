"""Functions that read topics, with isolation level read_committed and without committing offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from outbox_events.waiting import Observation, wait_for
from outbox_kit.errors import UnreachableError
from outbox_kit.kafka.client import READ_TOPIC_HINT, REQUEST_TIMEOUT_S, client_settings
from outbox_kit.pipeline import Kafka

POLL_S = 0.2
READ_TIMEOUT_S = 60


@contextmanager
def _consumer(kafka: Kafka, topic: str, **settings: object) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            **client_settings(kafka),
            "group.id": "outbox-kit-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **settings,
        }
    )
    try:
        yield consumer
    except KafkaException as error:
        raise UnreachableError(f"cannot read topic {topic}: {error.args[0].str()}", READ_TOPIC_HINT) from None
    finally:
        consumer.close()


@contextmanager
def reader_at_end(kafka: Kafka, topic: str, *, seconds: float | None = None) -> Iterator[Consumer]:
    """Open a consumer at the current end of the topic. Raises UnreachableError if the topic does not exist.

    `seconds` limits each request for the end.
    """
    timeout_s = REQUEST_TIMEOUT_S if seconds is None else seconds
    with _consumer(kafka, topic) as consumer:
        metadata = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        end_positions = []
        for number in metadata.partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=timeout_s)
            end_positions.append(TopicPartition(topic, number, end))
        consumer.assign(end_positions)
        yield consumer


def read_records(
    kafka: Kafka,
    topic: str,
    starts: Mapping[int, int],
    process: Callable[[Message], None],
    *,
    seconds: float = READ_TIMEOUT_S,
    limit: int | None = None,
    ends: Mapping[int, int] | None = None,
) -> None:
    """Call `process` with every committed record from `starts` (offset by partition) to the current end of the topic.

    Stop after `limit` records. `ends` are the offsets up to which a partition is read, at least, if producers write to
    it so often that its end is never reached. Raises UnreachableError, and WaitTimeoutError after `seconds`.
    """
    count = 0
    unread_partitions = set(starts)
    with _consumer(kafka, topic, **{"enable.partition.eof": True}) as consumer:
        consumer.assign([TopicPartition(topic, number, offset) for number, offset in starts.items()])

        def poll() -> Observation[bool]:
            nonlocal count
            result = _poll(consumer)
            if isinstance(result, int):
                unread_partitions.discard(result)
            elif result is not None:
                count += 1
                process(result)
                number = result.partition() or 0
                if ends and number in ends and (result.offset() or 0) + 1 >= ends[number]:
                    unread_partitions.discard(number)
            is_done = not unread_partitions or count == limit
            return Observation(is_done or None, f"{count} records, unread partitions {sorted(unread_partitions)}")

        if unread_partitions:
            wait_for(f"the end of topic {topic}", poll, seconds=seconds, interval=0)


def read_first_records(
    kafka: Kafka, starts: Sequence[TopicPartition], process: Callable[[Message], None], *, limit: int, seconds: float
) -> set[tuple[str, int]]:
    """Call `process` with the first `limit` committed records of each partition, from its offset in `starts` on.

    Return topic and number of each partition that has `limit` records or more. Raises UnreachableError, and
    WaitTimeoutError after `seconds`.
    """
    if not starts:
        return set()
    counts = Counter[tuple[str, int]]()
    unread_partitions = {(start.topic, start.partition) for start in starts}
    names = ", ".join(sorted({start.topic for start in starts}))
    with _consumer(kafka, names, **{"enable.partition.eof": True, "fetch.wait.max.ms": 10}) as consumer:
        consumer.assign(list(starts))

        def poll() -> Observation[bool]:
            message = consumer.poll(POLL_S)
            if message is not None:
                partition = message.topic() or "", message.partition() or 0
                if _is_end(message):
                    unread_partitions.discard(partition)
                elif partition in unread_partitions:
                    process(message)
                    counts[partition] += 1
                    if counts[partition] == limit:
                        unread_partitions.discard(partition)
                        consumer.pause([TopicPartition(*partition)])
            return Observation(not unread_partitions or None, f"{counts.total()} records")

        wait_for(f"the first records of {names}", poll, seconds=seconds, interval=0)
    return {partition for partition, count in counts.items() if count == limit}


def read_record(kafka: Kafka, topic: str, partition: int, offset: int) -> Message | None:
    """Return the committed record at `offset`, or None if there is no such record. Raises UnreachableError."""
    with _consumer(kafka, topic, **{"enable.partition.eof": True}) as consumer:
        consumer.assign([TopicPartition(topic, partition, offset)])

        def poll() -> Observation[list[Message]]:
            result = _poll(consumer)
            if result is None:
                return Observation(None, "no record")
            return Observation([result] if not isinstance(result, int) and result.offset() == offset else [], "")

        records = wait_for(f"offset {offset} of topic {topic}", poll, seconds=READ_TIMEOUT_S, interval=0)
    return records[0] if records else None


def _poll(consumer: Consumer) -> Message | int | None:
    """Poll once. Return a record, the number of a partition whose end was reached, or None. Raises KafkaException."""
    message = consumer.poll(POLL_S)
    if message is None or not _is_end(message):
        return message
    return message.partition() or 0


def _is_end(message: Message) -> bool:
    """Return whether a polled message is the end of a partition instead of a record. Raises KafkaException."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    return error is not None
