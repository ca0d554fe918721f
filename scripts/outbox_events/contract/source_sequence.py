"""Header source_sequence: source epoch, last commit LSN and event LSN, see docs/contract.md."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_events.contract.headers import SOURCE_SEQUENCE


@dataclass(frozen=True)
class WalPosition:
    """LSN of the source in a source epoch. LSNs of different source epochs cannot be compared."""

    epoch: int
    lsn: int

    def precedes(self, sequence: str) -> bool:
        """Return whether the event with this source_sequence was certainly committed after the position.

        The commit of an event has a higher LSN than both LSNs of its source_sequence, so one of them is sufficient.
        """
        other = _latest_position(sequence)
        return other is not None and other.epoch == self.epoch and other.lsn >= self.lsn

    def is_exceeded_by(self, sequence: str) -> bool:
        """Return whether no event with this source_sequence can have been committed up to the position."""
        other = _latest_position(sequence)
        return other is not None and (other.epoch, other.lsn) > (self.epoch, self.lsn)


def _latest_position(sequence: str) -> WalPosition | None:
    """Return the higher position of a source_sequence; None if it is malformed."""
    match = SOURCE_SEQUENCE.fullmatch(sequence)
    if match is None:
        return None
    epoch, last_commit_lsn, event_lsn = (int(digits, 16) for digits in match.groups())
    return WalPosition(epoch, max(last_commit_lsn, event_lsn))
