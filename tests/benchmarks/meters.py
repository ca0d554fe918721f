"""Meters of the CPU time of a process, and of the readable offsets and records of a topic."""

from __future__ import annotations

import os
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from outbox_kit.kafka.client import client_settings
from outbox_kit.pipeline import Kafka


def cpu_seconds(pid: int | None) -> float:
    """Return the user and system time of a process; 0 if there is no /proc or the process has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class StableOffsets:
    """Reads the sum of the last stable offsets of all partitions, at which read_committed consumers stop.

    Each transaction marker has an offset, so the sum exceeds the number of records.
    """

    def __init__(self, kafka: Kafka, topic: str, partitions: int) -> None:
        self._consumer = _consumer(kafka)
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]

    def offsets(self) -> int:
        """Return the sum of the current offsets."""
        return sum(self._consumer.get_watermark_offsets(partition, timeout=30)[1] for partition in self._partitions)

    def close(self) -> None:
        self._consumer.close()


def count_records(kafka: Kafka, topic: str, partitions: int) -> tuple[int, int]:
    """Return the number of records that a read_committed consumer receives, and the total size of their values."""
    consumer = _consumer(kafka, **{"enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    records, size, at_end = 0, 0, set()
    try:
        while len(at_end) < partitions:
            for message in consumer.consume(10_000, timeout=1):
                error = message.error()
                if error is None:
                    records += 1
                    size += len(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return records, size


def _consumer(kafka: Kafka, **settings: object) -> Consumer:
    return Consumer(
        {
            **client_settings(kafka),
            "group.id": "outbox-bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **settings,
        }
    )
