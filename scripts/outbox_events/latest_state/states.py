"""Keep the newest record of each key. The order of records is the order of their versions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from confluent_kafka import Message

from outbox_events.contract.headers import SOURCE_SEQUENCE
from outbox_events.contract.source_sequence import PATTERN_OF_BYTES

Entry = tuple[bytes, int, int, int, bytes]
"""The members of Version (with source_sequence as bytes), the partition and the value. A plain tuple is compact and
fast. Its first three members sort like a Version."""
Tombstone = tuple[bytes, int, int, int, float]
"""Like Entry, but with the time after which the version is discarded, in seconds since 1970, instead of the value."""


class States:
    """Maps keys to states and recent tombstones, as bytes. While one thread writes, other threads can read."""

    def __init__(self, tombstone_ttl_s: float) -> None:
        self._tombstone_ttl_s = tombstone_ttl_s
        self.clear()

    def clear(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.tombstones: dict[bytes, Tombstone] = {}
        """Tombstones, sorted by time so that the oldest are removed first."""
        self.unordered: set[bytes] = set()
        """Keys that have a record whose position in the order is unknown. The key's next ordered record removes it."""
        self.partition_epoch = 0
        self.ignored = 0

    def apply(self, messages: Iterable[Message], positions: dict[int, int]) -> list[Message]:
        """Apply records, and advance the positions of their partitions. Return the messages that are not records."""
        entries, tombstones, epoch = self.entries, self.tombstones, self.partition_epoch
        unordered, is_valid, others = self.unordered, PATTERN_OF_BYTES.fullmatch, []
        for message in messages:
            if message.error() is not None:
                others.append(message)
                continue
            # Typed as Any, because only the value and, if the topic is not compacted, the key of a record can be None.
            key: Any = message.key()
            partition: Any = message.partition()
            offset: Any = message.offset()
            headers: Any = message.headers()
            value: Any = message.value()
            positions[partition] = offset + 1
            # If a header name occurs more than once, dict() keeps the last header, which is the valid one.
            sequence = (dict(headers).get(SOURCE_SEQUENCE) if headers else None) or b""
            current = entries.get(key) or (tombstones.get(key) if tombstones else None)
            if key is None:
                self.ignored += 1
            elif sequence and is_valid(sequence) is None:
                unordered.add(key)
            elif current is None and value is not None and not unordered:  # most records of the first read
                entries[key] = (sequence, epoch, offset, partition, value)
            elif current is None or (sequence, epoch, offset) >= current[:3]:
                self._replace(key, value, (sequence, epoch, offset, partition), current)
            else:
                self._ignore(key, sequence, current)
        return others

    def _replace(
        self,
        key: bytes,
        value: bytes | None,
        version: tuple[bytes, int, int, int],
        current: Entry | Tombstone | None,
    ) -> None:
        # A repeated copy of the current record does not show whether the record without a known position is older.
        is_ordered = key in self.unordered and version[0] > (current[0] if current else b"")
        if self.tombstones:
            self.tombstones.pop(key, None)  # even before re-adding it, because tombstones are sorted by time
        if value is not None:
            self.entries[key] = (*version, value)
        else:
            self.tombstones[key] = (*version, time.time() + self._tombstone_ttl_s)
            self.entries.pop(key, None)
        if is_ordered:
            self.unordered.discard(key)  # last, so that no other thread returns the earlier state as the latest

    def _ignore(self, key: bytes, sequence: bytes, current: Entry | Tombstone) -> None:
        """Count an older record. If only the current state has a source_sequence, mark the key as unordered."""
        if not sequence and current[0]:
            self.unordered.add(key)
        self.ignored += 1

    def forget_tombstones(self) -> None:
        """Remove expired tombstones."""
        now = time.time()
        for key, _ in list(takewhile(lambda item: item[1][4] <= now, self.tombstones.items())):
            del self.tombstones[key]
