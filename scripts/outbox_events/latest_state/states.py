"""Newest record of each key, in the order of Version."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import Message

from outbox_events.contract.headers import SOURCE_SEQUENCE
from outbox_events.contract.source_sequence import PATTERN_OF_BYTES

Entry = tuple[bytes, int, int, int, bytes]
"""Members of Version (source_sequence as bytes), partition, value. A plain tuple needs little memory and time. Its
first three members sort like a Version."""
Tombstone = tuple[bytes, int, int, int, float]
"""Like Entry, but with the time after which the version is discarded, in seconds since 1970, instead of the value."""


class States:
    """States and recent tombstones by key, as bytes. One thread writes, and others can read at the same time."""

    def __init__(self, tombstone_ttl_s: float) -> None:
        self._tombstone_ttl_s = tombstone_ttl_s
        self.clear()

    def clear(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.tombstones: dict[bytes, Tombstone] = {}
        """Sorted by time, so that the oldest are removed first."""
        self.unordered: set[bytes] = set()
        """Keys with a record whose position in the order is unknown. A newer record removes the key."""
        self.partition_epoch = 0
        self.ignored = 0

    def apply(self, messages: Iterable[Message], positions: dict[int, int]) -> list[Message]:
        """Apply records, and set the positions of their partitions. Return the messages that are not records."""
        entries, tombstones, epoch = self.entries, self.tombstones, self.partition_epoch
        unordered, is_valid, others = self.unordered, PATTERN_OF_BYTES.fullmatch, []
        for message in messages:
            if message.error() is not None:
                others.append(message)
                continue
            # Typed as Any: in a record only the value and, outside compacted topics, the key can be None.
            key: Any = message.key()
            partition: Any = message.partition()
            offset: Any = message.offset()
            headers: Any = message.headers()
            value: Any = message.value()
            positions[partition] = offset + 1
            # dict() keeps the last header with a name, which is the valid one.
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
        # A repeated copy of the current state or tombstone does not establish the order of the other record.
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
        for key in [*_expired(self.tombstones, now)]:
            del self.tombstones[key]


def _expired(tombstones: dict[bytes, Tombstone], now: float) -> Iterator[bytes]:
    for key, tombstone in tombstones.items():
        if tombstone[4] > now:
            return
        yield key
