"""Changes of a column's type that preserve every stored value. Types are named as in PostgreSQL."""

from __future__ import annotations

import re

from outbox_spark.decoding.columns import ColumnType

_WIDENINGS = frozenset(
    {
        # The promotions of numbers in Avro's schema resolution, except int and long to float.
        (ColumnType.INTEGER, ColumnType.BIGINT),
        (ColumnType.INTEGER, ColumnType.DOUBLE),
        (ColumnType.BIGINT, ColumnType.DOUBLE),
        (ColumnType.REAL, ColumnType.DOUBLE),
    }
)
_NUMERIC_PATTERN = re.compile(r"numeric\((\d+),(\d+)\)")


def is_widening(actual: str, desired: str) -> bool:
    """Return whether a column of type `actual` can be changed to `desired`; both types are results of format_type().

    bigint to double precision is included although doubles are exact up to 2^53 only, because every Avro reader with
    the newest schema reads such a field as a double.
    """
    if (actual, desired) in _WIDENINGS:
        return True
    actual_numeric, desired_numeric = _NUMERIC_PATTERN.fullmatch(actual), _NUMERIC_PATTERN.fullmatch(desired)
    if actual_numeric is None or desired_numeric is None:
        return False
    return actual_numeric[2] == desired_numeric[2] and int(actual_numeric[1]) < int(desired_numeric[1])
