"""The text of a record key, by which records are compared.

Two keys of the same text can differ in bytes: in the id of a schema, in the spelling of JSON. They are one aggregate,
so all of that goes before keys are compared.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.json_text import parsed, payload_of
from outbox_spark.jobs.model import Format
from outbox_spark.session.no_inline import once

_FRAME_BYTES = 5
_ALL = 2**31 - 1
# Bytes of an Avro length, and which lengths take them: a zigzag varint has 7 bits per byte, and one for the sign.
_LENGTHS = {1: (0, (1 << 6) - 1), 2: (1 << 6, (1 << 13) - 1), 3: (1 << 13, (1 << 20) - 1)}
_WHOLE_NUMBER = "^-?[0-9]+$"


def key_text(key: Column, id_header: Column, key_format: Format) -> Column:
    """The text of a key, binary. `id_header` is the record's __key_schema_id.

    NULL for a key that is NULL or, in the JSON formats, no text and no whole number.
    """
    if key_format is Format.TEXT:
        return _text(key, id_header)
    return _json_text(key, with_schema=key_format is Format.JSON_WITH_SCHEMA)


def _text(key: Column, id_header: Column) -> Column:
    """UTF-8 as it is, or an Avro string: behind a frame, or bare with its schema id in the header.

    A frame is recognised by its first byte, 0x00, which no text in PostgreSQL can begin with, and by a length
    that is exactly that of the rest; what merely looks like an Avro string stays as it is. NULL stays NULL.
    """
    # Most keys have no frame: they are told by one byte and a missing header, and pay for nothing else.
    return (
        F.when(id_header.isNotNull(), _avro_string(key, 0))
        .when(F.substring(key, 1, 1) == F.lit(b"\x00"), _avro_string(key, _FRAME_BYTES))
        .otherwise(key)
    )


def _avro_string(key: Column, skipped: int) -> Column:
    """The text of an Avro string behind so many bytes; the whole key where it is none."""
    size = F.octet_length(key)
    text = key
    for count, (shortest, longest) in _LENGTHS.items():
        start = skipped + count
        length = size - F.lit(start)
        fits = length.between(shortest, longest) & (F.substring(key, skipped + 1, count) == _length(length, count))
        text = F.when(fits, F.substring(key, start + 1, _ALL)).otherwise(text)
    return text


def _json_text(key: Column, *, with_schema: bool) -> Column:
    """A JSON text, or a whole number as it is written; of an envelope the payload."""
    found = parsed(key)
    found = payload_of(found) if with_schema else found
    kind, text = F.schema_of_variant(found), F.try_variant_get(found, "$", "string")
    # Of other numbers there is more than one spelling; true, null and objects name nothing.
    whole = F.rlike(text, F.lit(_WHOLE_NUMBER)) & ((kind == "BIGINT") | F.startswith(kind, F.lit("DECIMAL")))
    return once(F.when((kind == "STRING") | whole, text.cast("binary")))


def _length(length: Column, count: int) -> Column:
    """A length as Avro writes it, in just so many bytes: twice the number, 7 bits each, the lowest first."""
    parts = []
    for index in range(count):
        bits = F.shiftright(length * 2, 7 * index).bitwiseAND(F.lit(0x7F))
        more = F.lit(0x80 if index + 1 < count else 0)
        parts.append(F.lpad(F.hex(bits.bitwiseOR(more).cast("long")), 2, "0"))
    return F.unhex(F.concat(*parts))
