"""Reads single topics to or from their end, read_committed; joins no group and commits nothing."""

from __future__ import annotations

from collections.abc import Iterator
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
    """A consumer that stands at the end of partition 0. Raises UnreachableError when there is no such topic."""
    with _consumer(kafka, topic) as consumer:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=REQUEST_TIMEOUT_S)
        consumer.assign([TopicPartition(topic, 0, end)])
        yield consumer


def read_all(kafka: Kafka, topic: str, partitions: int) -> list[Message]:
    """Every committed record that the topic holds now. For topics that fit into memory.

    Raises UnreachableError, WaitTimeoutError.
    """
    found: list[Message] = []
    unread = set(range(partitions))
    with _consumer(kafka, topic, **{"enable.partition.eof": True}) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in unread])

        def look() -> Seen[bool]:
            message = consumer.poll(POLL_S)
            if message is None:
                return Seen(None, f"{len(found)} records, partitions {sorted(unread)} not at their end")
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition() or 0)
            elif error is not None:
                raise KafkaException(error)
            else:
                found.append(message)
            return Seen(None if unread else True, f"{len(found)} records")

        wait_for(f"the end of topic {topic}", look, seconds=READ_TIMEOUT_S, every=0)
    return found
