"""Encode JSON objects, arrays, and values of unions as Avro. The value determines the branch of a union."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outbox_kit.encoding.avro.node import Node, long_bytes, mismatch, prefixed
from outbox_kit.encoding.json_values import Members, kind_of
from outbox_kit.encoding.row import PayloadError, quoted_name

OBJECTS, ARRAYS = frozenset({Members}), frozenset({list})
MIN_WORK, WORK_PER_CHARACTER = 100_000, 20


class Work:
    """State while a payload is encoded: the number of skipped fields, and the remaining work for union branches."""

    def __init__(self) -> None:
        self.skipped = 0
        self.remaining = 0

    def start(self, length: int) -> None:
        self.skipped, self.remaining = 0, MIN_WORK + WORK_PER_CHARACTER * length

    def count(self, value: object) -> None:
        """Count the tokens and characters of a value for each union branch that reads it. Raises LimitError."""
        self.remaining -= _size(value)
        if self.remaining < 0:
            raise LimitError


class LimitError(Exception):
    """The work limit was exceeded. Without a limit, a small payload could take hours in deeply nested unions."""


def _size(value: object) -> int:
    if isinstance(value, Members):
        return 2 + sum(1 + len(name) + _size(item) for name, item in value)
    if isinstance(value, list):
        return 2 + sum(map(_size, value))
    return 1 + (len(value) if isinstance(value, str) else 0)


class ArrayNode(Node):
    """Writes arrays as one block."""

    def __init__(self, items: Node) -> None:
        super().__init__("array", ARRAYS)
        self._items = items

    def write(self, value: object) -> bytes:
        parts = []
        for index, item in enumerate(value if isinstance(value, list) else ()):
            try:
                parts.append(self._items.encode(item))
            except PayloadError as error:
                raise error.within(f"[{index}]") from None
        return block(parts)


class MapNode(Node):
    """Writes objects as maps in one block. Messages never contain the keys of a map, because the keys are data."""

    def __init__(self, values: Node) -> None:
        super().__init__("map", OBJECTS)
        self._values = values

    def write(self, value: object) -> bytes:
        parts, keys = list[bytes](), set[str]()
        for key, item in value if isinstance(value, Members) else ():
            if key in keys:
                raise PayloadError("duplicate key in a map")
            keys.add(key)
            try:
                encoded_key = prefixed(key.encode())
            except UnicodeEncodeError:
                raise PayloadError("a key of a map has an unpaired surrogate") from None
            try:
                parts.append(encoded_key + self._values.encode(item))
            except PayloadError as error:
                raise error.within("{}") from None
        return block(parts)


def block(items: list[bytes]) -> bytes:
    """Return a block: the item count, the items and the end marker."""
    return long_bytes(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"


@dataclass(frozen=True)
class Field:
    """Field of a record. `default` is the default value as Avro binary, or None if the field has no default."""

    name: str
    node: Node
    default: bytes | None


class RecordNode(Node):
    """Writes objects as records. Fields can be in any order, and missing fields get their default values."""

    def __init__(self, name: str, work: Work, *, ignore_unknown: bool) -> None:
        super().__init__(f"record {name}", OBJECTS)
        self._work, self._ignore_unknown = work, ignore_unknown
        self.fields: list[Field] = []  # filled after construction, because a record can contain itself
        self._by_name: dict[str, Field] = {}

    def add(self, field: Field) -> None:
        self.fields.append(field)
        self._by_name[field.name] = field

    def write(self, value: object) -> bytes:
        encoded: dict[str, bytes] = {}
        for name, item in value if isinstance(value, Members) else ():
            field = self._by_name.get(name)
            if field is None:
                self._skip(name)
                continue
            if name in encoded:
                raise PayloadError(f'duplicate field "{name}"')
            try:
                encoded[name] = field.node.encode(item)
            except PayloadError as error:
                raise error.within(name) from None
        return b"".join([self._encoded_or_default(field, encoded) for field in self.fields])

    def _skip(self, name: str) -> None:
        if not self._ignore_unknown:
            raise PayloadError(f"unknown field {quoted_name(name)} of {self.expected}")
        self._work.skipped += 1

    @staticmethod
    def _encoded_or_default(field: Field, encoded: dict[str, bytes]) -> bytes:
        data = encoded.get(field.name, field.default)
        if data is None:
            raise mismatch(field.node.expected, "neither the field nor a default").within(field.name)
        return data


class UnionNode(Node):
    """Writes a value with the branch that accepts it and skips the fewest fields. The first branch wins a tie."""

    def __init__(self, branches: Sequence[Node], work: Work) -> None:
        accepted = frozenset().union(*(branch.accepted for branch in branches))
        super().__init__(" or ".join(branch.expected for branch in branches), accepted)
        self._branches = list(enumerate(branches))
        self._work = work

    def write(self, value: object) -> bytes:
        candidates = [(number, branch) for number, branch in self._branches if branch.accepts(value)]
        if len(candidates) == 1:  # the error of the only candidate is more specific
            number, branch = candidates[0]
            return long_bytes(number) + branch.write(value)
        best = self._best(candidates, value)
        if best is None:
            raise mismatch(self.expected, kind_of(value))
        self._work.skipped = best[0]
        return best[1]

    def _best(self, candidates: list[tuple[int, Node]], value: object) -> tuple[int, bytes] | None:
        before, best = self._work.skipped, None
        for number, branch in candidates:
            self._work.skipped = before
            try:
                if isinstance(value, list):
                    self._work.count(value)
                data = long_bytes(number) + branch.write(value)
            except PayloadError:
                continue
            if best is None or self._work.skipped < best[0]:
                best = (self._work.skipped, data)
            if self._work.skipped == before:
                return best
        self._work.skipped = before
        return best
