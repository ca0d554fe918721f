"""Split values in Confluent's wire format for Avro: a zero byte, the schema id in four bytes, and the Avro body."""

from __future__ import annotations

import struct

PREFIX = struct.Struct(">bI")


def schema_id(value: object) -> int | None:
    """Return the schema id of a record's value, or None if the value is not in the wire format."""
    if not isinstance(value, bytes) or len(value) < PREFIX.size:
        return None
    magic_byte, found_id = PREFIX.unpack_from(value)
    return int(found_id) if magic_byte == 0 else None


def body(value: bytes) -> bytes:
    """Return the Avro body of a value in the wire format."""
    return value[PREFIX.size :]
