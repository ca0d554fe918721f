"""Validate Avro bodies: the bytes must be exactly one value of a schema. Logical types are not checked."""

from __future__ import annotations

import json
from typing import Any

from fastavro import parse_schema

from outbox_kit.encoding.avro.node import CONTINUATION
from outbox_kit.encoding.json_values import MAX_DEPTH
from outbox_kit.encoding.row import PayloadError

MAX_EMPTY_ITEMS = 100_000
"""Number of items that a body can contain in addition to one per byte, because items such as null take no bytes."""
MAX_INT_BYTES, MAX_LONG_BYTES = 5, 10
SIZES = {"null": 0, "float": 4, "double": 8}
ENDS_EARLY = "the bytes end before the end of the value"


class AvroBodyChecker:
    """Checks the Avro bodies of one schema version."""

    def __init__(self, schema: str) -> None:
        self._named: dict[str, Any] = {}
        self._schema = parse_schema(json.loads(schema), self._named)

    def check(self, body: bytes, start: int = 0) -> None:
        """Raise PayloadError if the bytes from `start` to the end are not exactly one value of the schema."""
        reader = _Reader(body, start, self._named)
        reader.check(self._schema, 0)
        if reader.offset != len(body):
            raise PayloadError(f"{len(body) - reader.offset} bytes after the end of the Avro value")


class _Reader:
    """Reads one Avro body."""

    def __init__(self, data: bytes, offset: int, named: dict[str, Any]) -> None:
        self.data, self.offset, self._named = data, offset, named
        self._remaining_items = len(data) - offset + MAX_EMPTY_ITEMS

    def check(self, schema: Any, depth: int) -> None:  # noqa: ANN401 - any node of a schema
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if isinstance(schema, list):
            self.check(schema[self._below(len(schema), "union")], depth)
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(kind, str) or kind in self._named:
            self.check(kind, depth)
        elif kind in ("record", "error"):
            self._check_record(schema, _next(depth))
        elif kind in ("array", "map"):
            self._check_blocks(schema, kind == "map", _next(depth))
        elif kind == "enum":
            self._below(len(schema["symbols"]), "enum")
        elif kind == "fixed":
            self._skip(schema["size"])
        else:
            self._check_primitive(kind)

    def _check_primitive(self, kind: str) -> None:
        if kind in SIZES:
            self._skip(SIZES[kind])
        elif kind == "int":
            if not -(2**31) <= self._varint(MAX_INT_BYTES) < 2**31:
                raise PayloadError("expected int, found a number out of range")
        elif kind == "long":
            self._varint()
        elif kind == "boolean":
            if self._byte() > 1:
                raise PayloadError("expected boolean, found a number out of range")
        elif kind == "bytes":
            self._skip(self._varint())
        else:
            self._check_string()

    def _check_record(self, schema: dict[str, Any], depth: int) -> None:
        for field in schema["fields"]:
            try:
                self.check(field["type"], depth)
            except PayloadError as error:
                raise error.within(field["name"]) from None

    def _check_blocks(self, schema: dict[str, Any], is_map: bool, depth: int) -> None:
        items, index = schema["values" if is_map else "items"], 0
        while count := self._varint():
            declared_size = self._varint() if count < 0 else None
            start = self.offset
            for _ in range(abs(count)):
                self._check_item(items, is_map, depth, index)
                index += 1
            if declared_size is not None and self.offset - start != declared_size:
                raise PayloadError("the size of a block of items differs from its declared size")

    def _check_item(self, schema: Any, is_map: bool, depth: int, index: int) -> None:  # noqa: ANN401
        self._remaining_items -= 1
        if self._remaining_items < 0:
            raise PayloadError("too many array and map items for the size of the body")
        try:
            if is_map:
                self._check_string()
            self.check(schema, depth)
        except PayloadError as error:
            raise error.within("{}" if is_map else f"[{index}]") from None

    def _check_string(self) -> None:
        length = self._varint()
        start = self.offset
        self._skip(length)
        try:
            self.data[start : self.offset].decode()
        except UnicodeDecodeError:
            raise PayloadError("expected string, found bytes that are not UTF-8") from None

    def _below(self, count: int, expected: str) -> int:
        value = self._varint(MAX_INT_BYTES)
        if not 0 <= value < count:
            raise PayloadError(f"expected {expected}, found a number out of range")
        return value

    def _varint(self, max_bytes: int = MAX_LONG_BYTES) -> int:
        value = 0
        for position in range(max_bytes):
            byte = self._byte()
            value |= (byte & 0x7F) << 7 * position
            if byte < CONTINUATION:
                value &= 2**64 - 1
                return value >> 1 ^ -(value & 1)
        raise PayloadError(f"a varint has more than {max_bytes} bytes")

    def _byte(self) -> int:
        self._skip(1)
        return self.data[self.offset - 1]

    def _skip(self, count: int) -> None:
        if count < 0:
            raise PayloadError("a length is negative")
        if count > len(self.data) - self.offset:
            raise PayloadError(ENDS_EARLY)
        self.offset += count


def _next(depth: int) -> int:
    if depth == MAX_DEPTH:
        raise PayloadError(f"nested over {MAX_DEPTH} levels deep")
    return depth + 1
