"""Tombstones in partitions to which the connector does not send the records of a key."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from outbox_kit.errors import RejectedError, UnreachableError
from outbox_kit.kafka.client import client_settings
from outbox_kit.pipeline import Kafka

FLUSH_TIMEOUT_S = 60
QUEUE_POLL_S = 1.0
PERMISSION_HINT = "allow the login of kafka.client to write to the topic, and run the command again"


def write_tombstones(kafka: Kafka, topic: str, places: Iterable[tuple[str, int]]) -> None:
    """Write a tombstone for each key and partition, and wait for the broker. Raises UnreachableError, RejectedError."""
    errors: list[str] = []

    def collect(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error.str())

    try:
        producer = Producer({**client_settings(kafka), "enable.idempotence": True})
        for key, partition in places:
            while True:
                try:
                    producer.produce(topic, key=key.encode(), value=None, partition=partition, on_delivery=collect)
                    break
                except BufferError:  # the queue is full
                    producer.poll(QUEUE_POLL_S)
        unsent_count = producer.flush(FLUSH_TIMEOUT_S)
    except KafkaException as error:
        raise RejectedError(f"topic {topic}: {error.args[0].str()}", PERMISSION_HINT) from None
    if errors:
        raise RejectedError(f"topic {topic}: {len(errors)} tombstones were rejected: {errors[0]}", PERMISSION_HINT)
    if unsent_count:
        message = f"topic {topic}: {unsent_count} tombstones were not written within {FLUSH_TIMEOUT_S} s"
        raise UnreachableError(message, "check the brokers and kafka.client, and run the command again")
