"""Base class of the nodes of a compiled Avro schema, which encode JSON values."""

from __future__ import annotations

from abc import ABC, abstractmethod

from outbox_kit.encoding.invalid_row import PayloadError
from outbox_kit.encoding.json_values import kind_of


class Node(ABC):
    """Encodes the JSON values of one schema node. `accepted` are the Python types of its JSON values."""

    def __init__(self, expected: str, accepted: frozenset[type]) -> None:
        self.expected = expected
        self.accepted = accepted

    def accepts(self, value: object) -> bool:
        return type(value) in self.accepted

    def encode(self, value: object) -> bytes:
        """Return the Avro encoding. Raises PayloadError for a value that does not fit."""
        if type(value) not in self.accepted:
            raise mismatch(self.expected, kind_of(value))
        return self.write(value)

    @abstractmethod
    def write(self, value: object) -> bytes:
        """Return the Avro encoding of a value of an accepted type."""


def mismatch(expected: str, actual: str) -> PayloadError:
    return PayloadError(f"expected {expected}, found {actual}")
