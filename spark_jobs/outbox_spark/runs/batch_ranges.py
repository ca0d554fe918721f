"""Cuts what is to be read into batches of about so many records. Pure: no Spark, no network.

How many records a stretch of offsets holds is not known before it is read: compaction, transaction markers and
aborted transactions leave gaps. The first batch therefore spans as many offsets as it may have records, which is
never too many; each later one is sized by the density that the one before it turned out to have.
"""

from __future__ import annotations

from dataclasses import replace

from outbox_spark.jobs.model import ReadRange

_GROWTH = 4
"""A batch spans at most so many times the offsets of the one before: density can change along a topic."""


class Batches:
    """The batches of one range, in order: `next_batch()` until it is None, telling each time what the last one held."""

    def __init__(self, read: ReadRange, max_records: int) -> None:
        self._read = read
        self._max_records = max_records
        self._position = dict(read.start)
        self._span = max_records
        self._last_span = 0

    @property
    def remaining(self) -> int:
        """Offsets that are not yet in a batch."""
        return sum(end - self._position[partition] for partition, end in self._read.end.items())

    @property
    def share_done(self) -> float:
        """Between 0 and 1, by offsets."""
        whole = sum(end - self._read.start[partition] for partition, end in self._read.end.items())
        return 1.0 if whole == 0 else 1 - self.remaining / whole

    def next_batch(self) -> ReadRange | None:
        """The next batch; None at the end of the range."""
        remaining = self.remaining
        if remaining == 0:
            return None
        span = min(self._span, remaining)
        start = dict(self._position)
        for partition, end in self._read.end.items():
            # Every partition advances by its share, so that all of them end together. Rounded up: each batch advances.
            left = end - start[partition]
            self._position[partition] = start[partition] + min(left, -(-left * span // remaining))
        self._last_span = remaining - self.remaining
        return replace(self._read, start=start, end=dict(self._position))

    def held(self, records: int) -> None:
        """Say how many records the last batch held."""
        density = max(records, 1) / max(self._last_span, 1)
        wanted = int(self._max_records / density)
        self._span = max(self._max_records, min(wanted, self._last_span * _GROWTH))
