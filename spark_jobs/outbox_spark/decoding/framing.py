"""Which schema wrote a record: the frame of a Confluent-compatible serializer, in front of the body or in a header.

A frame is 0x00 and an id of 4 bytes (big endian), or 0x01 and a GUID of 16 bytes. Serializers of Schema Registry 8
can put it into a record header instead; the body is then bare. The header goes first, as in Confluent's own readers
(`DualSchemaIdDeserializer`), so topics with both kinds of records are read record by record.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

VALUE_ID_HEADER = "__value_schema_id"
KEY_ID_HEADER = "__key_schema_id"
_ID_BYTES = 5
_GUID_BYTES = 17
_GUID = "^(.{8})(.{4})(.{4})(.{4})(.{12})$"


def header_of(headers: Column, name: str) -> Column:
    """The last header of that name, binary; NULL without one."""
    names = headers["key"]
    # `get` is NULL beyond the array, where `[]` raises under ANSI mode; so "not found" needs no branch.
    return F.get(headers["value"], F.size(names) - F.array_position(F.reverse(names), name))


def schema_id(value: Column, header: Column) -> Column:
    """The id of the frame, long; NULL where there is none."""
    frame = F.coalesce(header, value)
    # conv, because there is no other cast from bytes; an id is below 2^31 in every registry.
    number = F.conv(F.hex(F.substring(frame, 2, _ID_BYTES - 1)), 16, 10).cast("long")
    return F.when(_framed(frame, b"\x00", _ID_BYTES), number)


def schema_guid(value: Column, header: Column) -> Column:
    """The GUID of the frame, 36 characters; NULL where there is none."""
    frame = F.coalesce(header, value)
    digits = F.lower(F.hex(F.substring(frame, 2, _GUID_BYTES - 1)))
    guid = F.regexp_replace(digits, _GUID, "$1-$2-$3-$4-$5")
    return F.when(_framed(frame, b"\x01", _GUID_BYTES), guid)


def body_of(value: Column, header: Column, guid: Column) -> Column:
    """The value without its frame; only for values that have an id or a GUID."""
    size = F.when(guid.isNull(), F.lit(_ID_BYTES)).otherwise(F.lit(_GUID_BYTES))
    framed = F.substring(value, size + 1, F.lit(2**31 - 1))
    return F.when(header.isNull(), framed).otherwise(value)


def _framed(frame: Column, magic: bytes, size: int) -> Column:
    return (F.octet_length(frame) >= F.lit(size)) & (F.substring(frame, 1, 1) == F.lit(magic))
