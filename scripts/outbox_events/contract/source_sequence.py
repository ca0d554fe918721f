"""Version of a record, which is the ordering rule, and its comparison with WAL positions (docs/contract.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from outbox_events.contract.headers import SOURCE_SEQUENCE

PATTERN = re.compile(r"([0-9a-f]{4})_([0-9a-f]{16})-([0-9a-f]{16})")
"""Value of the header: source epoch, last commit LSN and event LSN."""
PATTERN_OF_BYTES = re.compile(PATTERN.pattern.encode())
EPOCH_DIGITS = 4
MAX_EPOCH = 16**EPOCH_DIGITS - 1


class Version(NamedTuple):
    """Version of a record of one key. The order of these tuples is the ordering rule: a higher version is newer.

    `sequence` is source_sequence, which sorts as source epoch, last commit LSN and event LSN. It is empty for a record
    without this header, which is older than all records that have it. A malformed one sorts as text and has no LSN.
    """

    sequence: str
    partition_epoch: int = 0
    offset: int = 0

    @property
    def source_epoch(self) -> int:
        """Source epoch; 0 if `sequence` does not begin with one."""
        try:
            return int(self.sequence[:EPOCH_DIGITS], 16)
        except ValueError:
            return 0

    @property
    def lsn(self) -> int | None:
        """Higher one of the two LSNs; None if `sequence` is empty or malformed."""
        match = PATTERN.fullmatch(self.sequence)
        return None if match is None else max(int(digits, 16) for digits in match.groups()[1:])

    def is_ordered_by_sequence(self, other: Version) -> bool:
        """Return whether source_sequence decides which of two records is newer: both have one, and they differ."""
        return bool(self.sequence and other.sequence) and self.sequence != other.sequence


UNVERSIONED = Version("")


def version_of(headers: Mapping[str, str]) -> Version:
    """Return the version that the headers of a record determine. Its partition epoch and offset are 0."""
    return Version(headers.get(SOURCE_SEQUENCE, ""))


@dataclass(frozen=True)
class WalPosition:
    """LSN of the source in a source epoch. LSNs of different source epochs cannot be compared."""

    epoch: int
    lsn: int

    def precedes(self, version: Version) -> bool:
        """Return whether the event of the record was certainly committed after the position.

        The commit of an event has a higher LSN than both LSNs of its source_sequence, so one of them is sufficient.
        """
        lsn = version.lsn
        return lsn is not None and version.source_epoch == self.epoch and lsn >= self.lsn

    def is_exceeded_by(self, version: Version) -> bool:
        """Return whether the event of the record cannot have been committed up to the position."""
        lsn = version.lsn
        return lsn is not None and (version.source_epoch, lsn) > (self.epoch, self.lsn)
