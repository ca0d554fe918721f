"""Changes of a column's type that preserve every stored value. Types have their names in PostgreSQL."""

from __future__ import annotations

import re

from outbox_spark.decoding.columns import ColumnType

_WIDER = frozenset(
    {
        # The promotions of Avro's schema resolution, except those that round: int and long to float.
        (ColumnType.INTEGER, ColumnType.BIGINT),
        (ColumnType.INTEGER, ColumnType.DOUBLE),
        (ColumnType.BIGINT, ColumnType.DOUBLE),
        (ColumnType.REAL, ColumnType.DOUBLE),
    }
)
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")


def is_widening(actual: str, desired: str) -> bool:
    """Return whether a column of type `actual` may become `desired`, both in the form of format_type().

    long to double is included although doubles are exact up to 2^53 only: with the newest schema every Avro reader
    reads such a field as a double.
    """
    if (actual, desired) in _WIDER:
        return True
    before, after = _NUMERIC.fullmatch(actual), _NUMERIC.fullmatch(desired)
    if before is None or after is None:
        return False
    return before[2] == after[2] and int(before[1]) < int(after[1])
