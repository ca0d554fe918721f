"""Latest record of each key of a topic."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Message

from outbox_kit.errors import RefusedError
from outbox_kit.kafka.client import Bounds, KafkaClient
from outbox_kit.kafka.topic_reader import read_records, text_headers
from outbox_kit.kafka.value_sample import ValueSample
from outbox_kit.wire_format import schema_id

READ_TIMEOUT_S = 3600


@dataclass(frozen=True)
class LatestRecord:
    """Latest record of a key; `has_state` is False for a tombstone. `header` is the text of one requested header.

    `schema_id` is that of a value in Confluent's wire format.
    """

    sequence: str
    event_id: str
    event_time: str
    has_state: bool
    partition: int = 0
    header: str = ""
    schema_id: int | None = None


class LatestRecords:
    """Latest record of each key of a topic. The first read() reads the entire topic, later calls only new records.

    If the topic was recreated, or records at its beginning were deleted, read() reads the entire topic again.
    `sample` receives the values of the records.
    """

    def __init__(
        self,
        kafka: KafkaClient,
        topic: str,
        *,
        max_records: int | None = None,
        header: str | None = None,
        sample: ValueSample | None = None,
    ) -> None:
        self._kafka = kafka
        self._topic = topic
        self._max_records = max_records
        self._header = header
        self.sample = sample
        self._read_count = 0
        self._topic_id = ""
        self._first_offsets: dict[int, int] = {}
        self._next_offsets: dict[int, int] = {}
        self.by_key: dict[str, LatestRecord] = {}

    def read(self, *, seconds: float = READ_TIMEOUT_S) -> None:
        """Read up to the current end of the topic. A call after an error continues where the last call has ended.

        Raises UnreachableError, RejectedError, WaitTimeoutError, and RefusedError after `max_records` new records.
        """
        bounds, topic_id = self._kafka.bounds(self._topic), self._kafka.topic_id(self._topic)
        if topic_id != self._topic_id or self._lost_records(bounds):
            self._topic_id, self._first_offsets, self._next_offsets, self.by_key = topic_id, {}, {}, {}
            bounds = self._kafka.bounds(self._topic)
            if self.sample:
                self.sample.clear()
        self._read_count = 0
        self._first_offsets = {number: bound.first for number, bound in bounds.items()}
        starts = {number: self._next_offsets.get(number, bound.first) for number, bound in bounds.items()}
        unread = {number: start for number, start in starts.items() if start < bounds[number].end}
        read_records(self._kafka.kafka, self._topic, unread, self._add_record, seconds=seconds)
        # Markers of transactions have offsets, too.
        for number, bound in bounds.items():
            self._next_offsets[number] = max(self._next_offsets.get(number, 0), bound.end)

    @property
    def partition_count(self) -> int:
        """Number of partitions in the last read()."""
        return len(self._first_offsets)

    def keys_with_state(self) -> set[str]:
        """Return the keys whose latest record is not a tombstone."""
        return {key for key, record in self.by_key.items() if record.has_state}

    def _lost_records(self, bounds: dict[int, Bounds]) -> bool:
        """Return whether records that were read no longer exist. Compaction does not change the first offset."""
        return any(
            bound.first != self._first_offsets.get(number, bound.first) or bound.end < self._next_offsets.get(number, 0)
            for number, bound in bounds.items()
        )

    def _add_record(self, record: Message) -> None:
        if self._read_count == self._max_records:
            message = f"topic {self._topic} has more than {self._max_records} unread records"
            raise RefusedError(message, "allow more records with --max-records")
        self._read_count += 1
        partition = record.partition() or 0
        self._next_offsets[partition] = (record.offset() or 0) + 1
        key_bytes = record.key()
        if not isinstance(key_bytes, bytes):
            return
        key, headers = key_bytes.decode(errors="replace"), text_headers(record)
        sequence = headers.get("source_sequence", "")
        # After partitions were added, a key can have records in two of them: source_sequence orders these records.
        if key in self.by_key and self.by_key[key].sequence > sequence:
            return
        self.by_key[key] = LatestRecord(
            sequence,
            headers.get("event_id", ""),
            headers.get("event_time", ""),
            record.value() is not None,
            partition,
            headers.get(self._header, "") if self._header else "",
            schema_id(record.value()),
        )
        if self.sample:
            self.sample.set(key, record.value())
