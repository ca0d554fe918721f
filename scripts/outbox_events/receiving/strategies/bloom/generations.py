"""Recognize the most recent event ids of a partition by two generations of Bloom filters."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from math import prod

from rbloom import Bloom

HASH_BYTES = 16
COUNT_BYTES = 8
"""Length of the number of hash functions with which the content of a saved filter begins."""


def hash_of(event_id: str) -> bytes:
    """Return 16 bytes. Unlike Python's `hash`, they are the same in every process."""
    return blake2b(event_id.encode(), digest_size=HASH_BYTES).digest()


class Generations:
    """Recognizes the last `capacity` to 2 * `capacity` ids by their hashes.

    If both filters are full, an id that was not added is recognized with a probability of at most `error_rate`. The
    filters need 2 * capacity * 1.44 * log2(2 / error_rate) bits of memory, which is 750 KB for a capacity of 100,000
    and an error rate of 1e-6.
    """

    def __init__(self, capacity: int, error_rate: float) -> None:
        """Start without filters. `error_rate` is between 0 and 1."""
        self._capacity = capacity
        self._error_rate = error_rate
        self._filters: list[Bloom] = []
        self._count = 0  # of the ids in the newest filter
        self._limit = 0

    def __contains__(self, id_hash: bytes) -> bool:
        return any(id_hash in each for each in self._filters)

    def restore(self, saved: bytes | None, joined: bytes) -> None:
        """Continue with a saved full filter, if any, and with the joined hashes that were added after it."""
        self._filters = [] if saved is None else [Bloom.load_bytes(saved, _number)]
        self._count = 0
        self.add([joined[start : start + HASH_BYTES] for start in range(0, len(joined), HASH_BYTES)])

    def full_filter(self, more: int) -> bytes | None:
        """Return the newest filter as bytes if it has no room for `more` hashes, so that `add` begins another one."""
        return self._filters[-1].save_bytes() if self._count and self._count + more > self._limit else None

    def add(self, hashes: Collection[bytes]) -> None:
        """Add different hashes. If the newest filter has no room for them, drop the older one and begin another."""
        if not hashes:
            return
        if not self._count or self._count + len(hashes) > self._limit:
            self._limit, self._count = max(self._capacity, len(hashes)), 0
            self._filters = [*self._filters[-1:], Bloom(self._limit, self._error_rate / 2, _number)]
        self._filters[-1].update(hashes)
        self._count += len(hashes)

    def measured_error_rate(self) -> float:
        """Return the probability that an id that was not added is recognized, from the bits that are set."""
        return 1 - prod(1 - _false_positives(each.save_bytes()) for each in self._filters)


def _number(id_hash: bytes) -> int:
    return int.from_bytes(id_hash, "big", signed=True)


def _false_positives(saved: bytes) -> float:
    functions, bits = int.from_bytes(saved[:COUNT_BYTES], "little"), saved[COUNT_BYTES:]
    return float((int.from_bytes(bits, "little").bit_count() / (8 * len(bits))) ** functions)
