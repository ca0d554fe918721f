"""The text of a record key: raw UTF-8, or an Avro string in Confluent wire format.

Two framed keys of the same text can differ in the schema id. They are one aggregate, so the frame goes before keys
are compared.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

_HEADER_BYTES = 5
# Bytes of an Avro length, and which lengths take them: a zigzag varint has 7 bits per byte, and one for the sign.
_LENGTHS = {1: (0, (1 << 6) - 1), 2: (1 << 6, (1 << 13) - 1), 3: (1 << 13, (1 << 20) - 1)}


def key_text(key: Column) -> Column:
    """The key without its frame, binary; a key without one as it is.

    A frame is recognised by its first byte, 0x00, which no text in PostgreSQL can begin with, and by a length
    that is exactly that of the rest; what merely begins with 0x00 stays as it is. NULL stays NULL.
    """
    size = F.octet_length(key)
    text = key
    for count, (shortest, longest) in _LENGTHS.items():
        start = _HEADER_BYTES + count
        length = size - F.lit(start)
        fits = length.between(shortest, longest) & (
            F.substring(key, _HEADER_BYTES + 1, count) == _length(length, count)
        )
        text = F.when(fits, F.substring(key, start + 1, 2**31 - 1)).otherwise(text)
    # Most keys have no frame: they are told by one byte, and pay for nothing else.
    return F.when(F.substring(key, 1, 1) == F.lit(b"\x00"), text).otherwise(key)


def _length(length: Column, count: int) -> Column:
    """A length as Avro writes it, in just so many bytes: twice the number, 7 bits each, the lowest first."""
    parts = []
    for index in range(count):
        bits = F.shiftright(length * 2, 7 * index).bitwiseAND(F.lit(0x7F))
        more = F.lit(0x80 if index + 1 < count else 0)
        parts.append(F.lpad(F.hex(bits.bitwiseOR(more).cast("long")), 2, "0"))
    return F.unhex(F.concat(*parts))
