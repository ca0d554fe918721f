"""Header source_sequence: source epoch, last commit LSN and event LSN, see docs/contract.md."""

from __future__ import annotations

import re
from dataclasses import dataclass

PATTERN = re.compile(r"([0-9a-f]{4})_([0-9a-f]{16})-([0-9a-f]{16})")


@dataclass(frozen=True)
class WalPosition:
    """LSN of the source in a source epoch. LSNs of different source epochs cannot be compared."""

    epoch: int
    lsn: int

    def precedes(self, sequence: str) -> bool:
        """Return whether the event with this source_sequence was certainly committed after the position.

        The commit of an event has a higher LSN than both LSNs of its source_sequence, so one of them is sufficient.
        """
        match = PATTERN.fullmatch(sequence)
        if match is None:
            return False
        epoch, last_commit_lsn, event_lsn = (int(digits, 16) for digits in match.groups())
        return epoch == self.epoch and max(last_commit_lsn, event_lsn) >= self.lsn
