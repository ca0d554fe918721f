"""Encode a partition's acknowledged offsets: all before the committed offset, and those that its metadata lists."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from outbox_events.errors import RefusedError

PREFIX = "acknowledged: "
RANGES = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*", re.ASCII)
MAX_METADATA_LENGTH = 4096
"""Default of the brokers' offset.metadata.max.bytes."""


@dataclass(frozen=True)
class Acknowledged:
    """Acknowledged offsets: all offsets below `upto`, and the offsets in `single`."""

    upto: int
    single: frozenset[int] = frozenset()

    def __contains__(self, offset: int) -> bool:
        return offset < self.upto or offset in self.single

    @classmethod
    def parse(cls, upto: int, metadata: str) -> Acknowledged:
        """Return the offsets that a committed offset acknowledges. Metadata from another client is ignored."""
        text = metadata.strip("\0").removeprefix(PREFIX)
        if text == metadata or RANGES.fullmatch(text) is None:
            return cls(upto)
        ranges = [[int(number) for number in part.split("-")] for part in text.split(",")]
        return cls(upto, frozenset(offset for part in ranges for offset in range(part[0], part[-1] + 1)))

    def add(self, offsets: Iterable[int], existing: Collection[int]) -> Acknowledged:
        """Return the acknowledged offsets plus `offsets`. `existing` contains the offsets of all records after it."""
        added = self.single.union(offsets)
        upto = min((offset for offset in existing if offset not in added), default=max(added, default=-1) + 1)
        upto = max(upto, self.upto)
        return Acknowledged(upto, frozenset(offset for offset in added if offset >= upto))

    @property
    def metadata(self) -> str:
        """Metadata of the committed offset; empty if no single offset follows it. Raises RefusedError."""
        text = PREFIX + ",".join(_ranges(sorted(self.single))) if self.single else ""
        if len(text) > MAX_METADATA_LENGTH:
            raise RefusedError(
                f"too many single dead letters after offset {self.upto} are acknowledged",
                "replay or drop the oldest ones first, or run `outbox dead-letter acknowledge --to PARTITION/OFFSET`",
            )
        return text


def _ranges(offsets: list[int]) -> Iterable[str]:
    """Yield `7` or `7-9` for each run of consecutive offsets."""
    starts = [offset for offset in offsets if offset - 1 not in offsets]
    ends = [offset for offset in offsets if offset + 1 not in offsets]
    for start, end in zip(starts, ends, strict=True):
        yield str(start) if start == end else f"{start}-{end}"
