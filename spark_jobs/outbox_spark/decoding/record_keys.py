"""Convert record keys to the text that identifies the aggregate.

Keys with the same text belong to the same aggregate, even if their bytes differ, for example in the schema id.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.json_scalars import INTEGER_PATTERN
from outbox_spark.decoding.json_text import parse_json, payload_of
from outbox_spark.jobs.model import RecordFormat
from outbox_spark.session.expressions import prevent_inlining

_FRAME_BYTES = 5
_REST = 2**31 - 1
# For each size of a zigzag varint in bytes, the smallest and the largest text length that Avro encodes in that size.
_LENGTHS_BY_VARINT_BYTES = {1: (0, (1 << 6) - 1), 2: (1 << 6, (1 << 13) - 1), 3: (1 << 13, (1 << 20) - 1)}


def key_text(key: Column, id_header: Column, key_format: RecordFormat) -> Column:
    """Return the text of a key, as binary. `id_header` is the value of the record's header __key_schema_id.

    The text is NULL for a NULL key and, in the JSON formats, for a key that is neither a string nor an integer.
    """
    if key_format is RecordFormat.TEXT:
        return _text(key, id_header)
    return _json_text(key, with_schema=key_format is RecordFormat.JSON_WITH_SCHEMA)


def _text(key: Column, id_header: Column) -> Column:
    """If the key is an Avro string that has a frame or a schema id header, return its text. Otherwise return the key.

    A frame is recognized by its first byte, 0x00, which text in PostgreSQL cannot contain, and by a text length that
    matches the number of remaining bytes.
    """
    # Most keys have no frame. For these keys, only the header and the first byte are checked.
    return (
        F.when(id_header.isNotNull(), _avro_string(key, 0))
        .when(F.substring(key, 1, 1) == F.lit(b"\x00"), _avro_string(key, _FRAME_BYTES))
        .otherwise(key)
    )


def _avro_string(key: Column, frame_bytes: int) -> Column:
    """If an Avro string follows a frame of `frame_bytes` bytes, return the string's text. Otherwise return the key.

    A key whose text is not UTF-8 is also returned unchanged, so that the quarantine stores all bytes of the key.
    """
    key_size = F.octet_length(key)
    text = key
    for varint_bytes, (minimum, maximum) in _LENGTHS_BY_VARINT_BYTES.items():
        start = frame_bytes + varint_bytes
        length = key_size - F.lit(start)
        has_length = F.substring(key, frame_bytes + 1, varint_bytes) == _encoded_length(length, varint_bytes)
        content = F.substring(key, start + 1, _REST)
        is_text = length.between(minimum, maximum) & has_length & F.is_valid_utf8(content)
        text = F.when(is_text, content).otherwise(text)
    return text


def _json_text(key: Column, *, with_schema: bool) -> Column:
    """Return the text of a JSON string or integer, or of the payload of an envelope."""
    document = parse_json(key)
    document = payload_of(document) if with_schema else document
    kind, text = F.schema_of_variant(document), F.try_variant_get(document, "$", "string")
    # The only numbers accepted are integers (including 42.0, which the variant does not distinguish from 42), because
    # other numbers can be written in more than one way (1.5, 1.50).
    is_integer = F.rlike(text, F.lit(INTEGER_PATTERN)) & ((kind == "BIGINT") | F.startswith(kind, F.lit("DECIMAL")))
    return prevent_inlining(F.when((kind == "STRING") | is_integer, text.cast("binary")))


def _encoded_length(length: Column, varint_bytes: int) -> Column:
    """Return a length as Avro encodes it in `varint_bytes` bytes: doubled, 7 bits per byte, lowest bits first."""
    hex_bytes = []
    for index in range(varint_bytes):
        bits = F.shiftright(length * 2, 7 * index).bitwiseAND(F.lit(0x7F))
        continuation = F.lit(0x80 if index + 1 < varint_bytes else 0)
        hex_bytes.append(F.lpad(F.hex(bits.bitwiseOR(continuation).cast("long")), 2, "0"))
    return F.unhex(F.concat(*hex_bytes))
