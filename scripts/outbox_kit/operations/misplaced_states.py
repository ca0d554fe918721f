"""Tombstones in partitions to which the connector does not send the records of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from outbox_kit.errors import RejectedError, UnreachableError
from outbox_kit.kafka.client import client_settings
from outbox_kit.pipeline import Kafka

FLUSH_TIMEOUT_S = 60
QUEUE_POLL_S = 1.0
Callback = Callable[[KafkaError | None, Message], None]
PERMISSION_HINT = "allow the login of kafka.client to write to the topic, and run the command again"


@dataclass(frozen=True)
class MisplacedState:
    """State of a key in a wrong partition. A tombstone with this source_sequence deletes no newer state in tables."""

    key: str
    partition: int
    sequence: str

    @property
    def headers(self) -> list[tuple[str, str | bytes | None]]:
        return [("source_sequence", self.sequence)] if self.sequence else []


def write_tombstones(kafka: Kafka, topic: str, states: Iterable[MisplacedState]) -> None:
    """Write a tombstone for each state, and wait for the broker. Raises UnreachableError, RejectedError."""
    errors: list[str] = []

    def collect(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error.str())

    try:
        producer = Producer({**client_settings(kafka), "enable.idempotence": True})
        for state in states:
            _produce(producer, topic, state, collect)
        unsent_count = producer.flush(FLUSH_TIMEOUT_S)
    except KafkaException as error:
        raise RejectedError(f"topic {topic}: {error.args[0].str()}", PERMISSION_HINT) from None
    if errors:
        raise RejectedError(f"topic {topic}: {len(errors)} tombstones were rejected: {errors[0]}", PERMISSION_HINT)
    if unsent_count:
        message = f"topic {topic}: {unsent_count} tombstones were not written within {FLUSH_TIMEOUT_S} s"
        raise UnreachableError(message, "check the brokers and kafka.client, and run the command again")


def _produce(producer: Producer, topic: str, state: MisplacedState, collect: Callback) -> None:
    key = state.key.encode()
    while True:
        try:
            producer.produce(
                topic, key=key, value=None, partition=state.partition, headers=state.headers, on_delivery=collect
            )
            return
        except BufferError:  # the queue is full
            producer.poll(QUEUE_POLL_S)
