"""Text of a record key, which identifies the aggregate.

Keys with the same text belong to the same aggregate, even if their bytes differ (schema id, JSON whitespace).
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.json_text import parse_json, payload_of
from outbox_spark.jobs.model import RecordFormat
from outbox_spark.session.expressions import prevent_inlining

_FRAME_BYTES = 5
_MAX_LEN = 2**31 - 1
# By size of an encoded length in bytes: the minimum and maximum length. A zigzag varint has 7 bits per byte and a sign.
_LENGTHS = {1: (0, (1 << 6) - 1), 2: (1 << 6, (1 << 13) - 1), 3: (1 << 13, (1 << 20) - 1)}
_INTEGER = "^-?[0-9]+$"


def key_text(key: Column, id_header: Column, key_format: RecordFormat) -> Column:
    """Return the text of a key, as binary. `id_header` is the value of the record's header __key_schema_id.

    The text is NULL for a NULL key and, in the JSON formats, for a key that is neither a string nor an integer.
    """
    if key_format is RecordFormat.TEXT:
        return _text(key, id_header)
    return _json_text(key, with_schema=key_format is RecordFormat.JSON_WITH_SCHEMA)


def _text(key: Column, id_header: Column) -> Column:
    """Return the text of an Avro string with a frame or a schema id header. Return any other key, as UTF-8, unchanged.

    A frame is recognized by its first byte, 0x00, with which no text in PostgreSQL can begin, and by a length that
    matches the remaining bytes.
    """
    # Most keys have no frame: for them only the header and the first byte are checked.
    return (
        F.when(id_header.isNotNull(), _avro_string(key, 0))
        .when(F.substring(key, 1, 1) == F.lit(b"\x00"), _avro_string(key, _FRAME_BYTES))
        .otherwise(key)
    )


def _avro_string(key: Column, frame_bytes: int) -> Column:
    """Return the text of an Avro string after a frame of this size; the key unchanged if it is not an Avro string."""
    size = F.octet_length(key)
    text = key
    for count, (minimum, maximum) in _LENGTHS.items():
        start = frame_bytes + count
        length = size - F.lit(start)
        matches = F.substring(key, frame_bytes + 1, count) == _encoded_length(length, count)
        text = F.when(length.between(minimum, maximum) & matches, F.substring(key, start + 1, _MAX_LEN)).otherwise(text)
    return text


def _json_text(key: Column, *, with_schema: bool) -> Column:
    """Return the text of a JSON string or integer, or of the payload of an envelope."""
    document = parse_json(key)
    document = payload_of(document) if with_schema else document
    kind, text = F.schema_of_variant(document), F.try_variant_get(document, "$", "string")
    # Only integers: other numbers can be written in more than one way (1.5, 1.50).
    integer = F.rlike(text, F.lit(_INTEGER)) & ((kind == "BIGINT") | F.startswith(kind, F.lit("DECIMAL")))
    return prevent_inlining(F.when((kind == "STRING") | integer, text.cast("binary")))


def _encoded_length(length: Column, count: int) -> Column:
    """Return a length as Avro encodes it in `count` bytes: doubled, 7 bits per byte, lowest bits first."""
    digits = []
    for index in range(count):
        bits = F.shiftright(length * 2, 7 * index).bitwiseAND(F.lit(0x7F))
        continuation = F.lit(0x80 if index + 1 < count else 0)
        digits.append(F.lpad(F.hex(bits.bitwiseOR(continuation).cast("long")), 2, "0"))
    return F.unhex(F.concat(*digits))
