"""Sample the oldest records in the state topics to find keys that have a state in a wrong partition.

After partitions are added to a topic, the next record of many keys goes to another partition. Later records do not
replace the earlier states of these keys, and compaction retains the earlier states in the previous partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka import Message

from outbox_events.contract.partitioner import partition_of
from outbox_events.contract.source_sequence import version_of
from outbox_events.kafka.record import text_headers
from outbox_events.kafka.topic_reader import read_records
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.client import client_settings
from outbox_kit.kafka.state import Topic
from outbox_kit.kafka.unsequenced_records import UnsequencedRecords

MAX_RECORDS = 2000  # in total for all topics
MAX_SECONDS = 5
WIRE_FORMAT = b"\0"  # first byte of a key in Confluent's wire format; text in PostgreSQL cannot contain it


@dataclass
class KeySample:
    """Sampled keys of one topic, each with the partitions in which its last sampled record is a state.

    The partition of a key is known unless it depends on a `partition_field` or the key contains a schema id.
    `incomplete_partitions` contains the partitions of which only some records were sampled. `is_empty` means that the
    topic has no record.
    """

    topic: Topic
    has_partition_field: bool
    is_empty: bool = False
    partitions_by_key: dict[bytes, set[int]] = field(default_factory=dict)
    incomplete_partitions: set[int] = field(default_factory=set)
    unsequenced: UnsequencedRecords = field(default_factory=UnsequencedRecords)

    def add(self, message: Message) -> None:
        self.unsequenced.add(message, version_of(text_headers(message)))
        key, partition = message.key(), message.partition() or 0
        if not isinstance(key, bytes):
            return
        partitions = self.partitions_by_key.setdefault(key, set())
        if message.value() is None:
            partitions.discard(partition)
        else:
            partitions.add(partition)

    def misplaced_count(self) -> int:
        """Return the number of keys that have a state in a partition other than the partition of their next record."""
        return sum(self._is_misplaced(*entry) for entry in self.partitions_by_key.items())

    def _is_misplaced(self, key: bytes, partitions: set[int]) -> bool:
        if self.has_partition_field or key.startswith(WIRE_FORMAT):
            # In an incomplete partition, a tombstone that was not sampled might have removed the state.
            return len(partitions - self.incomplete_partitions) > 1
        return bool(partitions - {partition_of(key, self.topic.partitions)})


def sample_keys(deployment: Deployment, topics: list[Topic]) -> dict[str, KeySample]:
    """Sample the state topics in `topics`, and return a mapping from topic to sample.

    Raises UnreachableError, WaitTimeoutError.
    """
    aggregates = deployment.pipeline.aggregates
    ranges = {topic.name: deployment.kafka.bounds(topic.name) for topic in topics if topic.aggregate_type is not None}
    samples = {
        topic.name: KeySample(
            topic,
            aggregates[topic.aggregate_type].partition_field is not None,
            is_empty=all(bound.first == bound.end for bound in ranges[topic.name].values()),
        )
        for topic in topics
        if topic.aggregate_type is not None
    }
    count = sum(bound.first < bound.end for bounds in ranges.values() for bound in bounds.values())
    incomplete = read_records(
        client_settings(deployment.environment.kafka),
        ranges,
        lambda message: samples[message.topic() or ""].add(message),
        limit=max(1, MAX_RECORDS // max(1, count)),
        seconds=MAX_SECONDS,
    )
    for name, number in incomplete:
        samples[name].incomplete_partitions.add(number)
    return samples
