"""Newest record of each key, by the ordering rule of Version."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import Message

from outbox_events.contract.headers import SOURCE_SEQUENCE
from outbox_events.contract.source_sequence import PATTERN_OF_BYTES

Entry = tuple[bytes, int, int, int, bytes]
"""Members of Version (source_sequence as bytes), partition, value. A plain tuple takes little memory and time, and its
first three members have the order of Version."""
Tombstone = tuple[bytes, int, int, int, float]
"""As Entry, with the time in seconds since 1970 after which the version is forgotten."""


class States:
    """States and recent tombstones by key, as bytes. One thread writes; others can read at the same time."""

    def __init__(self, tombstone_ttl_s: float) -> None:
        self._tombstone_ttl_s = tombstone_ttl_s
        self.clear()

    def clear(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.tombstones: dict[bytes, Tombstone] = {}
        """In the order of their time, so that the oldest are removed first."""
        self.unordered: set[bytes] = set()
        """Keys with a record whose place in the order is unknown, until a newer record arrives."""
        self.partition_epoch = 0
        self.ignored = 0

    def apply(self, messages: Iterable[Message], positions: dict[int, int]) -> list[Message]:
        """Apply records, and set the position of their partitions. Return the messages that are not records."""
        entries, tombstones, epoch = self.entries, self.tombstones, self.partition_epoch
        unordered, is_valid, others = self.unordered, PATTERN_OF_BYTES.fullmatch, []
        for message in messages:
            if message.error() is not None:
                others.append(message)
                continue
            # Any: the parts of a record are not None, except for the value and, outside compacted topics, the key.
            key: Any = message.key()
            partition: Any = message.partition()
            offset: Any = message.offset()
            headers: Any = message.headers()
            value: Any = message.value()
            positions[partition] = offset + 1
            # dict() keeps the last header of a name, which is the valid one.
            sequence = (dict(headers).get(SOURCE_SEQUENCE) if headers else None) or b""
            current = entries.get(key) or (tombstones.get(key) if tombstones else None)
            if key is None:
                self.ignored += 1
            elif sequence and is_valid(sequence) is None:
                unordered.add(key)
            elif current is None and value is not None and not unordered:  # most records of a first reading
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
        # Another copy of the state or tombstone before the record without a place does not end the uncertainty.
        is_ordered = key in self.unordered and version[0] > (current[0] if current else b"")
        if self.tombstones:
            self.tombstones.pop(key, None)  # also before it is added again, because the order is that of the times
        if value is not None:
            self.entries[key] = (*version, value)
        else:
            self.tombstones[key] = (*version, time.time() + self._tombstone_ttl_s)
            self.entries.pop(key, None)
        if is_ordered:
            self.unordered.discard(key)  # last, so that no other thread takes the earlier state for the latest

    def _ignore(self, key: bytes, sequence: bytes, current: Entry | Tombstone) -> None:
        """Count an older record. Without source_sequence it cannot be compared with a state that has one."""
        if not sequence and current[0]:
            self.unordered.add(key)
        self.ignored += 1

    def forget_tombstones(self) -> None:
        """Remove the tombstones whose time has passed."""
        now = time.time()
        for key in [*_expired(self.tombstones, now)]:
            del self.tombstones[key]


def _expired(tombstones: dict[bytes, Tombstone], now: float) -> Iterator[bytes]:
    for key, tombstone in tombstones.items():
        if tombstone[4] > now:
            return
        yield key
