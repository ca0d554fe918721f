"""Expected table, computed from the records of its topic. Pure Python; shares no code with the jobs.

The newest record of a key is the one with the greatest (source_sequence, partition epoch, offset); records without
the header have an empty sequence. A row is the newest readable record, unless that is a tombstone. It is stale while a
newer record is quarantined. The retention of the ledger is not modeled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kafka_log import POISON, Record

Version = tuple[str, int, int]
Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True)
class Read:
    """A record as one run read it."""

    record: Record
    epoch: int = 0

    @property
    def version(self) -> Version:
        return (self.record.sequence or "", self.epoch, self.record.offset)

    @property
    def place(self) -> Place:
        return (self.record.partition, self.record.offset)

    @property
    def is_poison(self) -> bool:
        return self.record.state is POISON


@dataclass(frozen=True)
class Row:
    """One row; `state` has the fields that its value was written with."""

    state: dict[str, Any]
    version: Version
    stale: bool


@dataclass
class Expected:
    """A table, by key."""

    rows: dict[str, Row] = field(default_factory=dict)
    deleted: dict[str, Version] = field(default_factory=dict)
    """Keys whose newest readable record is a tombstone."""


def expected(reads: Iterable[Read]) -> Expected:
    """Return the table that has read these records, for any division into runs."""
    valid: dict[str, Read] = {}
    bad: dict[str, Version] = {}
    for read in reads:
        if read.record.key is None:
            continue
        key = read.record.key.decode()
        if read.is_poison:
            bad[key] = max(bad.get(key, read.version), read.version)
        elif key not in valid or valid[key].version < read.version:
            valid[key] = read
    table = Expected()
    for key, newest in valid.items():
        if newest.record.state is None:
            table.deleted[key] = newest.version
        else:
            assert isinstance(newest.record.state, dict)
            stale = key in bad and bad[key] > newest.version
            table.rows[key] = Row(newest.record.state, newest.version, stale)
    return table


def states(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """Return the rows by key. For topics without added partitions."""
    return {key: row.state for key, row in expected(Read(record) for record in records).rows.items()}


def quarantined(batch: Iterable[Read]) -> set[Place]:
    """Return the locations of the records that one batch quarantines: of each key the unreadable ones newer than all
    readable ones; of several copies of one event the last."""
    by_key: dict[bytes, list[Read]] = {}
    actual: set[Place] = set()
    for read in batch:
        if read.record.key is None:
            actual.add(read.place)
        else:
            by_key.setdefault(read.record.key, []).append(read)
    for reads in by_key.values():
        last_good = max((read.version for read in reads if not read.is_poison), default=None)
        copies: dict[object, Read] = {}
        for read in sorted(reads, key=lambda read: read.version):
            if read.is_poison and (last_good is None or read.version > last_good):
                copies[read.record.sequence or read.place] = read
        actual |= {read.place for read in copies.values()}
    return actual
