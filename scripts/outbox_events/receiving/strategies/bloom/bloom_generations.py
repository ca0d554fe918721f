"""Bloom filters of a limited number of ids: when the newer of two filters is full, the older one is dropped."""

from __future__ import annotations

from hashlib import blake2b
from operator import index

from rbloom import Bloom

BYTES = 16


def stable_hash(event_id: str) -> int:
    """Return a signed 128-bit hash that is the same in every process, unlike Python's `hash`."""
    return int.from_bytes(blake2b(event_id.encode(), digest_size=BYTES).digest(), "big", signed=True)


class Generations:
    """Recognizes the last `capacity` to 2 * `capacity` ids, given by their `stable_hash`.

    An id that was not added is (wrongly) recognized with a probability of at most `error_rate`, when both filters are
    full. Memory: 2 * capacity * 1.44 * log2(2 / error_rate) bits: 7.5 MB for a capacity
    of a million and an error rate of 1e-6.
    """

    def __init__(self, capacity: int, error_rate: float) -> None:
        """Begin empty. `error_rate` is between 0 and 1."""
        self.capacity = capacity
        self.error_rate = error_rate
        self.count = 0
        """Number of ids in the newer filter."""
        self.limit = capacity
        """Number of ids for which the newer filter was created."""
        self.newer = self._empty()
        self.older: Bloom | None = None

    def __contains__(self, id_hash: int) -> bool:
        return id_hash in self.newer or (self.older is not None and id_hash in self.older)

    def add(self, id_hash: int) -> None:
        """Add an id, in a new generation if the newer filter is full."""
        if self.count >= self.limit:
            self.older, self.newer, self.count, self.limit = self.newer, self._empty(), 0, self.capacity
        self.newer.add(id_hash)
        self.count += 1

    @property
    def size_bytes(self) -> int:
        """Memory of the filters."""
        return sum(bloom.size_in_bits for bloom in (self.newer, self.older) if bloom is not None) // 8

    def save(self) -> tuple[bytes, bytes]:
        """Return the newer and the older filter; the older one is empty if there is none."""
        return self.newer.save_bytes(), self.older.save_bytes() if self.older is not None else b""

    def load(self, newer: bytes, older: bytes, count: int, limit: int) -> None:
        """Continue with saved filters, whose capacity and error rate remain until each is dropped.

        Raises ValueError.
        """
        restored = Bloom.load_bytes(newer, index)
        self.older = Bloom.load_bytes(older, index) if older else None
        self.newer, self.count, self.limit = restored, count, limit

    def _empty(self) -> Bloom:
        return Bloom(self.capacity, self.error_rate / 2, index)
