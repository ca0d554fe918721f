"""Divide a range into batches of approximately a given number of records.

The number of records in a range of offsets is unknown until the range is read, because compaction, transaction markers
and aborted transactions leave gaps. The number of offsets in the first batch is therefore the maximum number of
records. The size of each later batch is computed from the density of records in the previous batch.
"""

from __future__ import annotations

from dataclasses import replace

from outbox_spark.jobs.model import ReadRange

_MAX_GROWTH = 4
"""Maximum factor by which the number of offsets grows from one batch to the next, because the density varies."""


class Batches:
    """Batches of one range, in order. Call `next_batch()` until it returns None, and `adapt()` after each batch."""

    def __init__(self, read_range: ReadRange, max_records: int) -> None:
        self._range = read_range
        self._max_records = max_records
        self._next_offsets = dict(read_range.start)
        self._offset_count = max_records
        self._last_offset_count = 0

    @property
    def remaining_offsets(self) -> int:
        """Number of offsets that are not yet in a batch."""
        return replace(self._range, start=self._next_offsets).offset_count

    @property
    def share_done(self) -> float:
        """Share of the offsets that are in a batch, from 0 to 1."""
        total = self._range.offset_count
        return 1.0 if total == 0 else 1 - self.remaining_offsets / total

    def next_batch(self) -> ReadRange | None:
        """Return the next batch; None at the end of the range."""
        remaining = self.remaining_offsets
        if remaining == 0:
            return None
        span = min(self._offset_count, remaining)
        start = dict(self._next_offsets)
        for partition, end in self._range.end.items():
            # All partitions advance by the same share, but by at least one offset, so that they end in the same batch.
            unread = end - start[partition]
            self._next_offsets[partition] = start[partition] + min(unread, -(-unread * span // remaining))
        self._last_offset_count = remaining - self.remaining_offsets
        return replace(self._range, start=start, end=dict(self._next_offsets))

    def adapt(self, record_count: int) -> None:
        """Adapt the number of offsets of the next batch to the number of records in the last batch."""
        density = max(record_count, 1) / max(self._last_offset_count, 1)
        span = int(self._max_records / density)
        self._offset_count = max(self._max_records, min(span, self._last_offset_count * _MAX_GROWTH))
