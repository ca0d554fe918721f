"""read_committed consumer in a separate process that records the arrival time of each event."""

from __future__ import annotations

import time
from multiprocessing.synchronize import Event
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

READY = "ready"


def read(
    settings: dict[str, Any],
    topic: str,
    partitions: int,
    results: Any,  # noqa: ANN401 - a queue of a spawn context
    arrived_count: Any,  # noqa: ANN401 - a shared integer
    stopping: Event,
) -> None:
    """Read until `stopping` is set, and count the events in `arrived_count`.

    Puts READY, then {event: nanoseconds of the monotonic clock, which all processes share} into `results`.
    The record key is the event id, because each row has a separate aggregate.
    """
    consumer = Consumer(
        {
            **settings,
            "group.id": "outbox-bench-latency",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.min.bytes": 1,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    arrived: dict[str, int] = {}
    results.put(READY)
    try:
        while not stopping.is_set():
            message = consumer.poll(0.1)
            now = time.monotonic_ns()
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            key = message.key()
            assert isinstance(key, bytes)
            arrived.setdefault(key.decode(), now)
            arrived_count.value = len(arrived)
    finally:
        consumer.close()
    results.put(arrived)
