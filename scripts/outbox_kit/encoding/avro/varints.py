"""Avro's variable-length numbers and length-prefixed bytes."""

from __future__ import annotations

CONTINUATION = 0x80
"""Bit of a byte after which further bytes follow."""
MAX_LONG = 2**63 - 1
MIN_LONG = -(2**63)


def long_bytes(value: int) -> bytes:
    """Return an int or long as zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    if rest < CONTINUATION:
        return bytes((rest,))
    encoded = bytearray()
    while rest >= CONTINUATION:
        encoded.append(rest & 0x7F | CONTINUATION)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def prefixed(data: bytes) -> bytes:
    """Return the bytes after their length."""
    return long_bytes(len(data)) + data
