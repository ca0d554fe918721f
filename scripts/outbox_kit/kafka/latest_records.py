"""Read the latest record of each key in a topic, and the values of a random sample of keys."""

from __future__ import annotations

import secrets
import zlib
from dataclasses import KW_ONLY, dataclass, replace

from confluent_kafka import Message

from outbox_events.contract.headers import EVENT_ID, EVENT_TIME
from outbox_events.contract.partitioner import partition_of
from outbox_events.contract.source_sequence import Version, version_of
from outbox_events.contract.wire_format import schema_id
from outbox_events.errors import RefusedError
from outbox_events.kafka.record import text_headers
from outbox_events.kafka.topic_reader import read_records
from outbox_events.kafka.topic_requests import Bounds
from outbox_kit.kafka.client import KafkaClient, client_settings
from outbox_kit.kafka.unsequenced_records import UnsequencedRecords

MAX_KEYS = 20_000
MAX_BYTES = 64 * 2**20
HASH_LIMIT = 2**32
READ_TIMEOUT_S = 3600
UNHASHED = ("\0", "\ufffd")  # characters in the text of keys that have a schema id or are not UTF-8


class ValueSample:
    """Values by key. When a limit is exceeded, half of the keys are dropped. Each sample drops different keys."""

    def __init__(self, *, max_keys: int = MAX_KEYS, max_bytes: int = MAX_BYTES) -> None:
        self._max_keys, self._max_bytes = max_keys, max_bytes
        self._salt = secrets.token_bytes(8)
        self.clear()

    def clear(self) -> None:
        self._hash_limit, self._byte_count = HASH_LIMIT, 0
        self.values: dict[str, bytes] = {}

    @property
    def is_complete(self) -> bool:
        """Whether the sample contains all keys."""
        return self._hash_limit == HASH_LIMIT

    def set(self, key: str, value: bytes | None) -> None:
        """Replace the value of a key. None, which is the value of a tombstone, removes the key."""
        self._byte_count -= len(self.values.pop(key, b""))
        if value is None or not self._includes(key):
            return
        self.values[key] = value
        self._byte_count += len(value)
        while len(self.values) > self._max_keys or self._byte_count > self._max_bytes:
            self._hash_limit //= 2
            self.values = {key: value for key, value in self.values.items() if self._includes(key)}
            self._byte_count = sum(map(len, self.values.values()))

    def _includes(self, key: str) -> bool:
        return self.is_complete or zlib.crc32(self._salt + key.encode(errors="replace")) < self._hash_limit


@dataclass(frozen=True)
class LatestRecord:
    """Latest record of a key. `has_state` is False for a tombstone. `header` is the text of the requested header.

    `schema_id` is the schema id of a value in Confluent's wire format.
    """

    version: Version
    event_id: str
    event_time: str
    has_state: bool
    partition: int = 0
    header: str = ""
    schema_id: int | None = None


@dataclass(eq=False, repr=False)
class LatestRecords:
    """Latest record of each key in a topic. The first read() reads the entire topic. Later calls read only new records.

    If the topic was recreated, or records at its beginning were deleted, read() reads the entire topic again.
    `sample` receives the values of the records, and `event_ids` receives the event id of every record. Records before
    the Unix time `since` are not read. If `hashed_keys` is true, a hash determines the partition of a key. Otherwise,
    its newest record does.
    """

    kafka: KafkaClient
    topic: str
    _: KW_ONLY
    max_records: int | None = None
    header: str | None = None
    sample: ValueSample | None = None
    hashed_keys: bool = False
    event_ids: set[str] | None = None
    since: float | None = None

    def __post_init__(self) -> None:
        self._read_count = 0
        self._topic_id = ""
        self._first_offsets: dict[int, int] = {}
        self._next_offsets: dict[int, int] = {}
        self._clear()

    def _clear(self) -> None:
        self.by_key: dict[str, LatestRecord] = {}
        self.unsequenced = UnsequencedRecords()
        self.overwritten: dict[str, bool] = {}
        """Keys whose newest record precedes an older record. True if the older record, which remains, is a state."""
        self._last: dict[str, dict[int, LatestRecord]] = {}
        """Last record of each key in each partition. Only keys that have a record in a wrong partition are included."""
        if self.sample:
            self.sample.clear()
        if self.event_ids:
            self.event_ids.clear()

    def read(self, *, seconds: float = READ_TIMEOUT_S) -> None:
        """Read up to the current end of the topic. A call after an error continues where the last call ended.

        Raises UnreachableError, RejectedError, WaitTimeoutError, and RefusedError after `max_records` new records.
        """
        bounds, topic_id = self.kafka.bounds(self.topic), self.kafka.topic_id(self.topic)
        if topic_id != self._topic_id or self._lost_records(bounds):
            self._topic_id, self._first_offsets, self._next_offsets = topic_id, {}, {}
            self._clear()
            bounds = self.kafka.bounds(self.topic)
            if self.since is not None:
                first = self.kafka.offsets_at(self.topic, bounds, self.since)
                self._next_offsets = {n: bounds[n].end if offset < 0 else offset for n, offset in first.items()}
        self._read_count = 0
        self._first_offsets = {number: bound.first for number, bound in bounds.items()}
        unread = {n: replace(bound, first=self._next_offsets.get(n, bound.first)) for n, bound in bounds.items()}
        read_records(client_settings(self.kafka.kafka), {self.topic: unread}, self.add, seconds=seconds)
        # Transaction markers also have offsets.
        for number, bound in bounds.items():
            self._next_offsets[number] = max(self._next_offsets.get(number, 0), bound.end)

    @property
    def partition_count(self) -> int:
        """Number of partitions at the last read()."""
        return len(self._first_offsets)

    def keys_with_state(self) -> set[str]:
        """Return the keys for which compaction retains a state."""
        return {key for key in self.by_key if self._has_state(key)}

    def misplaced_states(self) -> dict[str, tuple[int, ...]]:
        """Return the partitions, by key, with a state that neither the key's newest nor its next record replaces."""
        misplaced: dict[str, tuple[int, ...]] = {}
        for key, records in self._last.items():
            wrong = [
                record.partition for record in records.values() if record.has_state and self._is_wrong(key, record)
            ]
            if wrong:
                misplaced[key] = tuple(sorted(wrong))
        return misplaced

    def _is_wrong(self, key: str, record: LatestRecord) -> bool:
        newest, partition = self.by_key[key], record.partition
        if not self.hashed_keys and record.version >= newest.version:
            return False  # either copy can be in the correct partition
        was_deleted = not newest.has_state and newest.partition != partition
        return was_deleted or partition != self._home(key)

    def _has_state(self, key: str) -> bool:
        return self.overwritten.get(key, self.by_key[key].has_state)

    def _home(self, key: str) -> int:
        """Return the partition to which the key's next record will be sent."""
        return partition_of(key.encode(), self.partition_count) if self.hashed_keys else self.by_key[key].partition

    def _lost_records(self, bounds: dict[int, Bounds]) -> bool:
        """Return whether records that were read are now deleted. Compaction does not change the log start offset."""
        return any(
            bound.first != self._first_offsets.get(number, bound.first) or bound.end < self._next_offsets.get(number, 0)
            for number, bound in bounds.items()
        )

    def add(self, record: Message) -> None:
        """Add one record of the topic. Raises RefusedError after `max_records` records."""
        if self._read_count == self.max_records:
            message = f"topic {self.topic} has more than {self.max_records} unread records"
            raise RefusedError(message, "allow more records with --max-records")
        self._read_count += 1
        partition = record.partition() or 0
        self._next_offsets[partition] = (record.offset() or 0) + 1
        key_bytes = record.key()
        if not isinstance(key_bytes, bytes):
            return
        key, headers = key_bytes.decode(errors="replace"), text_headers(record)
        latest = LatestRecord(
            version_of(headers),
            headers.get(EVENT_ID, ""),
            headers.get(EVENT_TIME, ""),
            record.value() is not None,
            partition,
            headers.get(self.header, "") if self.header else "",
            schema_id(record.value()),
        )
        self.unsequenced.add(record, latest.version)
        if self.event_ids is not None:
            self.event_ids.add(latest.event_id)
        previous = self.by_key.get(key)
        if not any(text in key for text in UNHASHED):
            self._add_partition(key, previous, latest)
        # After partitions were added, a key can have records in two partitions. Versions determine the records' order.
        if previous and previous.version > latest.version:
            self._add_older(key, previous, latest)
            return
        self.overwritten.pop(key, None)
        self.by_key[key] = latest
        if self.sample:
            self.sample.set(key, record.value())

    def _add_older(self, key: str, newest: LatestRecord, record: LatestRecord) -> None:
        if record.event_id == newest.event_id:  # sent again after a restart, with a different last commit LSN
            self.overwritten.pop(key, None)
        elif record.partition == newest.partition:
            self.overwritten[key] = record.has_state

    def _add_partition(self, key: str, newest: LatestRecord | None, record: LatestRecord) -> None:
        if newest is None:
            if self.hashed_keys and self._home(key) != record.partition:
                self._last[key] = {record.partition: record}
        elif key in self._last or newest.partition != record.partition:
            retained = replace(newest, has_state=self._has_state(key))
            self._last.setdefault(key, {newest.partition: retained})[record.partition] = record
