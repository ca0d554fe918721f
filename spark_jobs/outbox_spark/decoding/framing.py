"""Extract the schema id of a record, which is in a frame before the body or in a record header.

A frame is 0x00 followed by an id of 4 bytes (big endian), or 0x01 followed by a GUID of 16 bytes. Since version 8,
Confluent's serializers can write the frame to a header instead of before the body. The header takes precedence,
as in Confluent's `DualSchemaIdDeserializer`, so that a topic may contain both kinds of records.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

VALUE_SCHEMA_ID_HEADER = "__value_schema_id"
KEY_SCHEMA_ID_HEADER = "__key_schema_id"
_ID_FRAME_BYTES = 5
_GUID_FRAME_BYTES = 17
_GUID_PATTERN = "^(.{8})(.{4})(.{4})(.{4})(.{12})$"


def last_header(headers: Column, name: str) -> Column:
    """Return the value of the last header with this name, as binary; NULL if there is no such header.

    Equivalent to Kafka's `Headers.lastHeader`.
    """
    header_names = headers["key"]
    # If the header is missing, the index is outside the array: `get` returns NULL, but `[]` would raise in ANSI mode.
    return F.get(headers["value"], F.size(header_names) - F.array_position(F.reverse(header_names), name))


def schema_id(value: Column, header: Column) -> Column:
    """Return, as a long, the id in the frame of the header or value; NULL if there is no frame or it has a GUID."""
    frame = F.coalesce(header, value)
    # Spark cannot cast bytes to a number. conv() is exact, because ids are below 2^31 in every registry.
    id_in_frame = F.conv(F.hex(F.substring(frame, 2, _ID_FRAME_BYTES - 1)), 16, 10).cast("long")
    return F.when(_has_frame(frame, b"\x00", _ID_FRAME_BYTES), id_in_frame)


def schema_guid(value: Column, header: Column) -> Column:
    """Return the GUID in the frame as text of 36 characters; NULL if there is no frame or it has an id."""
    frame = F.coalesce(header, value)
    digits = F.lower(F.hex(F.substring(frame, 2, _GUID_FRAME_BYTES - 1)))
    guid = F.regexp_replace(digits, _GUID_PATTERN, "$1-$2-$3-$4-$5")
    return F.when(_has_frame(frame, b"\x01", _GUID_FRAME_BYTES), guid)


def has_schema(keys: Collection[int | str]) -> Column:
    """Return whether a row's schema id or GUID (__outbox_schema_id, __outbox_schema_guid) is in `keys`."""
    is_known_id = F.col("__outbox_schema_id").isin([key for key in keys if isinstance(key, int)])
    is_known_guid = F.col("__outbox_schema_guid").isin([key for key in keys if isinstance(key, str)])
    return F.coalesce(is_known_id, F.lit(False)) | F.coalesce(is_known_guid, F.lit(False))


def body_of(value: Column, header: Column, guid: Column) -> Column:
    """Return the value without its frame; the record must have an id or a GUID."""
    frame_size = F.when(guid.isNull(), F.lit(_ID_FRAME_BYTES)).otherwise(F.lit(_GUID_FRAME_BYTES))
    unframed = F.substring(value, frame_size + 1, F.lit(2**31 - 1))
    return F.when(header.isNull(), unframed).otherwise(value)


def _has_frame(frame: Column, magic: bytes, size: int) -> Column:
    return (F.octet_length(frame) >= F.lit(size)) & (F.substring(frame, 1, 1) == F.lit(magic))
