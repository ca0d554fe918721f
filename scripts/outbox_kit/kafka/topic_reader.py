"""Reads single topics to or from their end, read_committed; joins no group and commits nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from outbox_kit.errors import UnreachableError
from outbox_kit.kafka.client import REQUEST_TIMEOUT_S, client_settings
from outbox_kit.pipeline import Kafka
from outbox_kit.waiting import Seen, wait_for

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
        message = f"cannot read topic {topic}: {error.args[0].str()}"
        raise UnreachableError(message, "run `outbox apply`, which creates every topic") from None
    finally:
        consumer.close()


@contextmanager
def reader_at_end(kafka: Kafka, topic: str) -> Iterator[Consumer]:
    """A consumer that stands at the end of every partition. Raises UnreachableError when there is no such topic."""
    with _consumer(kafka, topic) as consumer:
        found = consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        ends = []
        for number in found.partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=REQUEST_TIMEOUT_S)
            ends.append(TopicPartition(topic, number, end))
        consumer.assign(ends)
        yield consumer


def read_all(kafka: Kafka, topic: str, partitions: int) -> list[Message]:
    """Every committed record that the topic holds now. For topics that fit into memory.

    Raises UnreachableError, WaitTimeoutError.
    """
    found: list[Message] = []
    read_each(kafka, topic, dict.fromkeys(range(partitions), 0), found.append)
    return found


def read_each(
    kafka: Kafka,
    topic: str,
    starts: Mapping[int, int],
    take: Callable[[Message], None],
    *,
    seconds: float = READ_TIMEOUT_S,
) -> None:
    """Hand every committed record from `starts` (partition to offset) to the present end to `take`, one by one.

    Raises UnreachableError, WaitTimeoutError after `seconds`.
    """
    taken = 0
    unread = set(starts)
    with _consumer(kafka, topic, **{"enable.partition.eof": True}) as consumer:
        consumer.assign([TopicPartition(topic, number, offset) for number, offset in starts.items()])

        def look() -> Seen[bool]:
            nonlocal taken
            message = consumer.poll(POLL_S)
            if message is None:
                return Seen(None, f"{taken} records, partitions {sorted(unread)} not at their end")
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition() or 0)
            elif error is not None:
                raise KafkaException(error)
            else:
                taken += 1
                take(message)
            return Seen(None if unread else True, f"{taken} records")

        if unread:
            wait_for(f"the end of topic {topic}", look, seconds=seconds, every=0)


def read_one(kafka: Kafka, topic: str, partition: int, offset: int) -> Message | None:
    """The committed record at exactly this place; None where there is none. Raises UnreachableError."""
    with _consumer(kafka, topic, **{"enable.partition.eof": True}) as consumer:
        consumer.assign([TopicPartition(topic, partition, offset)])

        def look() -> Seen[list[Message]]:
            message = consumer.poll(POLL_S)
            if message is None:
                return Seen(None, "nothing yet")
            error = message.error()
            if error is None:
                return Seen([message] if message.offset() == offset else [], "a record")
            if error.code() == KafkaError._PARTITION_EOF:
                return Seen([], "the end")
            raise KafkaException(error)

        found = wait_for(f"offset {offset} of topic {topic}", look, seconds=READ_TIMEOUT_S, every=0)
    return found[0] if found else None


def text_headers(message: Message) -> dict[str, str]:
    """Headers as text; those that are no text are left out."""
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return {str(key): value.decode(errors="replace") for key, value in pairs if isinstance(value, bytes)}
