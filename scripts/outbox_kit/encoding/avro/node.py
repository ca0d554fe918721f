"""Define the base class of the nodes in a compiled Avro schema, and encode varints."""

from __future__ import annotations

from abc import ABC, abstractmethod

from outbox_kit.encoding.json_values import kind_of
from outbox_kit.encoding.row import PayloadError

CONTINUATION = 0x80
"""Bit that is set in each byte of a varint except the last byte."""
MAX_LONG = 2**63 - 1
MIN_LONG = -(2**63)


class Node(ABC):
    """Encodes the JSON values of one schema node. `accepted` contains the Python types of these JSON values."""

    def __init__(self, expected: str, accepted: frozenset[type]) -> None:
        self.expected = expected
        self.accepted = accepted

    def accepts(self, value: object) -> bool:
        return type(value) in self.accepted

    def encode(self, value: object) -> bytes:
        """Return the Avro encoding of a value. Raises PayloadError if the value does not fit the schema node."""
        if type(value) not in self.accepted:
            raise mismatch(self.expected, kind_of(value))
        return self.write(value)

    @abstractmethod
    def write(self, value: object) -> bytes:
        """Return the Avro encoding of a value of an accepted type."""


def mismatch(expected: str, actual: str) -> PayloadError:
    return PayloadError(f"expected {expected}, found {actual}")


def long_bytes(value: int) -> bytes:
    """Return an int or long as a zigzag varint."""
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
    """Return the length of the bytes, followed by the bytes."""
    return long_bytes(len(data)) + data
