"""Read the versions of records, order them, and compare them with WAL positions (docs/contract.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from outbox_events.contract.headers import SOURCE_SEQUENCE

PATTERN = re.compile(r"([0-9a-f]{4})_([0-9a-f]{16})-([0-9a-f]{16})")
"""Pattern of the header's value, which consists of source epoch, last commit LSN and event LSN."""
PATTERN_OF_BYTES = re.compile(PATTERN.pattern.encode())
EPOCH_DIGITS = 4
MAX_EPOCH = 16**EPOCH_DIGITS - 1


class Version(NamedTuple):
    """Version of a record. Of two records with the same key, the record with the greater version is newer.

    `sequence` is the header source_sequence, which sorts by source epoch, last commit LSN and event LSN. A record
    without this header has an empty `sequence`, and is older than every record with it. Malformed values sort as text.
    """

    sequence: str
    partition_epoch: int = 0
    offset: int = 0

    @property
    def source_epoch(self) -> int:
        """Source epoch, or 0 if `sequence` does not begin with a source epoch."""
        try:
            return int(self.sequence[:EPOCH_DIGITS], 16)
        except ValueError:
            return 0

    @property
    def lsn(self) -> int | None:
        """The higher of the two LSNs, or None if `sequence` is empty or malformed."""
        match = PATTERN.fullmatch(self.sequence)
        return None if match is None else max(int(digits, 16) for digits in match.groups()[1:])

    def is_ordered_by_sequence(self, other: Version) -> bool:
        """Return whether source_sequence decides the order: both records have the header, and the values differ."""
        return bool(self.sequence and other.sequence) and self.sequence != other.sequence


UNVERSIONED = Version("")


def version_of(headers: Mapping[str, str]) -> Version:
    """Return the version in a record's headers. Its partition epoch and offset are 0."""
    return Version(headers.get(SOURCE_SEQUENCE, ""))


@dataclass(frozen=True)
class WalPosition:
    """An LSN of the source database, and its source epoch. LSNs from different source epochs cannot be compared."""

    epoch: int
    lsn: int

    def precedes(self, version: Version) -> bool:
        """Return whether the event with this version was certainly committed after the position.

        An event's commit has a higher LSN than both LSNs in its source_sequence, so comparing one of them suffices.
        """
        lsn = version.lsn
        return lsn is not None and version.source_epoch == self.epoch and lsn >= self.lsn

    def is_exceeded_by(self, version: Version) -> bool:
        """Return whether the event with this version cannot have been committed at or before the position."""
        lsn = version.lsn
        return lsn is not None and (version.source_epoch, lsn) > (self.epoch, self.lsn)
