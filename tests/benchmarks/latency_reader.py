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
    seen: Any,  # noqa: ANN401 - a shared integer
    ended: Event,
) -> None:
    """Read until `ended` is set, counting events in `seen`.

    Puts READY, then {event: nanoseconds of the monotonic clock, which all processes share} into `results`.
    The key is the event's id here: each row has an aggregate of its own.
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
        while not ended.is_set():
            message = consumer.poll(0.1)
            now = time.monotonic_ns()
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            key = message.key()
            assert isinstance(key, bytes)
            arrived.setdefault(key.decode(), now)
            seen.value = len(arrived)
    finally:
        consumer.close()
    results.put(arrived)
