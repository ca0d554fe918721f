"""Dead letters that nobody has acknowledged. What was acknowledged is a committed offset of a consumer group."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from outbox_kit.errors import UnreachableError
from outbox_kit.kafka.client import REQUEST_TIMEOUT_S, client_settings
from outbox_kit.kafka.topic_reader import POLL_S
from outbox_kit.pipeline import Kafka
from outbox_kit.waiting import Seen, wait_for

# More than these are not counted one by one: what matters is that there are any.
COUNTED = 1000
COUNT_TIMEOUT_S = 20


def group_of(pipeline: str) -> str:
    """The consumer group whose committed offsets say up to where dead letters were acknowledged."""
    return f"outbox-kit.{pipeline}.dead-letter"


def unacknowledged(kafka: Kafka, topic: str, group: str) -> dict[int, int]:
    """Dead letters since the acknowledged offset, by partition; empty where there is no such topic.

    Joins no group and commits nothing. Counts at most `COUNTED`. Raises UnreachableError, WaitTimeoutError.
    """
    settings = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({**client_settings(kafka), **settings, "enable.partition.eof": True})
    try:
        found = consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        if found.error is not None:
            return {}
        starts = _starts(consumer, [TopicPartition(topic, number) for number in found.partitions])
        counts = dict.fromkeys(found.partitions, 0)
        waiting = [start for start in starts if start is not None]
        return counts | (_count(consumer, waiting) if waiting else {})
    except KafkaException as error:
        message = f"cannot read topic {topic}: {error.args[0].str()}"
        raise UnreachableError(message, "may this login read the topic and its consumer group?") from None
    finally:
        consumer.close()


def _starts(consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition | None]:
    """Where to begin to count each partition; None where everything in it was acknowledged."""
    starts: list[TopicPartition | None] = []
    for committed in consumer.committed(partitions, timeout=REQUEST_TIMEOUT_S):
        low, high = consumer.get_watermark_offsets(committed, timeout=REQUEST_TIMEOUT_S)
        start = max(low, committed.offset)  # a negative offset stands for none
        starts.append(TopicPartition(committed.topic, committed.partition, start) if start < high else None)
    return starts


def _count(consumer: Consumer, starts: list[TopicPartition]) -> dict[int, int]:
    """Committed records from `starts` on. End offsets would count transaction markers too."""
    counts = {start.partition: 0 for start in starts}
    unread = set(counts)
    consumer.assign(starts)

    def look() -> Seen[bool]:
        message = consumer.poll(POLL_S)
        error = message.error() if message is not None else None
        if message is not None and error is None:
            counts[message.partition() or 0] += 1
        elif message is not None and error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            unread.discard(message.partition() or 0)
        enough = not unread or sum(counts.values()) >= COUNTED
        return Seen(True if enough else None, f"{sum(counts.values())} records")

    wait_for("the end of the dead letter topic", look, seconds=COUNT_TIMEOUT_S, every=0)
    return counts
