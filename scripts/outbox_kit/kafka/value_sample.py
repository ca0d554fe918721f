"""Values of the latest records of a random sample of keys, within limits of memory."""

from __future__ import annotations

import secrets
import zlib

MAX_KEYS = 20_000
MAX_BYTES = 64 * 2**20
HASH_LIMIT = 2**32


class ValueSample:
    """Values by key. If they exceed a limit, half of the keys are dropped. The keys differ between two samples."""

    def __init__(self, *, max_keys: int = MAX_KEYS, max_bytes: int = MAX_BYTES) -> None:
        self._max_keys, self._max_bytes = max_keys, max_bytes
        self._salt = secrets.token_bytes(8)
        self.clear()

    def clear(self) -> None:
        self._hash_limit, self._byte_count = HASH_LIMIT, 0
        self.values: dict[str, bytes] = {}

    @property
    def is_complete(self) -> bool:
        """Whether no key was dropped."""
        return self._hash_limit == HASH_LIMIT

    def set(self, key: str, value: bytes | None) -> None:
        """Replace the value of a key; None, the value of a tombstone, removes the key."""
        self._byte_count -= len(self.values.pop(key, b""))
        if value is None or not self._includes(key):
            return
        self.values[key] = value
        self._byte_count += len(value)
        while len(self.values) > self._max_keys or self._byte_count > self._max_bytes:
            self._hash_limit //= 2
            self.values = {key: value for key, value in self.values.items() if self._includes(key)}
            self._byte_count = sum(map(len, self.values.values()))

    def _includes(self, key: str) -> bool:
        return self.is_complete or zlib.crc32(self._salt + key.encode(errors="replace")) < self._hash_limit
