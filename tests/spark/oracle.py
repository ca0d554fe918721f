"""Expected table, computed from the records of its topic without the code of the jobs.

The newest record of a key has the greatest (source_sequence, partition epoch, offset). Records without
the header have an empty sequence, and records with a malformed header are ignored. A row is the newest readable record,
unless that is a tombstone. It is stale while a newer record is quarantined. The retention of the ledger is not modeled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.spark.kafka_log import POISON, Record

SEQUENCE = re.compile(r"[0-9a-f]{4}_[0-9a-f]{16}-[0-9a-f]{16}")
Version = tuple[str, int, int]
RecordLocation = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True)
class ReadRecord:
    """A record, with the partition epoch of the run that read it."""

    record: Record
    epoch: int = 0

    @property
    def version(self) -> Version:
        return (self.record.sequence or "", self.epoch, self.record.offset)

    @property
    def location(self) -> RecordLocation:
        return (self.record.partition, self.record.offset)

    @property
    def has_version(self) -> bool:
        """Whether the sequence is missing or valid. A record without a version does not affect other records."""
        return self.record.sequence is None or SEQUENCE.fullmatch(self.record.sequence) is not None

    @property
    def is_poison(self) -> bool:
        return self.record.state is POISON


@dataclass(frozen=True)
class Row:
    """One row. `state` contains the fields of the writer's schema."""

    state: dict[str, Any]
    version: Version
    stale: bool


@dataclass
class ExpectedTable:
    """Rows and deletions by key."""

    rows: dict[str, Row] = field(default_factory=dict)
    deleted: dict[str, Version] = field(default_factory=dict)
    """Keys whose newest readable record is a tombstone."""


def expected(reads: Iterable[ReadRecord]) -> ExpectedTable:
    """Return the table after these records have been read, for any division into runs."""
    valid: dict[str, ReadRecord] = {}
    poisoned: dict[str, Version] = {}
    for read in reads:
        if read.record.key is None or not read.has_version:
            continue
        key = read.record.key.decode()
        if read.is_poison:
            poisoned[key] = max(poisoned.get(key, read.version), read.version)
        elif key not in valid or valid[key].version < read.version:
            valid[key] = read
    table = ExpectedTable()
    for key, newest in valid.items():
        if newest.record.state is None:
            table.deleted[key] = newest.version
        else:
            assert isinstance(newest.record.state, dict)
            stale = key in poisoned and poisoned[key] > newest.version
            table.rows[key] = Row(newest.record.state, newest.version, stale)
    return table


def states(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """Return the rows by key, for a topic to which no partitions were added."""
    return {key: row.state for key, row in expected(ReadRecord(record) for record in records).rows.items()}


def quarantined(batch: Iterable[ReadRecord]) -> set[RecordLocation]:
    """Return the locations of the records that one batch quarantines.

    These are a key's unreadable records that are newer than its readable records, with only the last copy of an event.
    """
    by_key: dict[bytes, list[ReadRecord]] = {}
    actual: set[RecordLocation] = set()
    for read in batch:
        if read.record.key is None or not read.has_version:
            actual.add(read.location)
        else:
            by_key.setdefault(read.record.key, []).append(read)
    for reads in by_key.values():
        newest_readable = max((read.version for read in reads if not read.is_poison), default=None)
        copies: dict[object, ReadRecord] = {}
        for read in sorted(reads, key=lambda read: read.version):
            if read.is_poison and (newest_readable is None or read.version > newest_readable):
                copies[read.record.sequence or read.location] = read
        actual |= {read.location for read in copies.values()}
    return actual
