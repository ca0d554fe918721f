"""Changes of a column's type that preserve every stored value. Pure: types by their names in PostgreSQL."""

from __future__ import annotations

import re

from outbox_spark.decoding.columns import Kind

_WIDER = frozenset(
    {
        # The promotions of Avro's schema resolution, except those that round: int and long to float.
        (Kind.INTEGER, Kind.BIGINT),
        (Kind.INTEGER, Kind.DOUBLE),
        (Kind.BIGINT, Kind.DOUBLE),
        (Kind.REAL, Kind.DOUBLE),
    }
)
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")


def widens(actual: str, desired: str) -> bool:
    """Return whether a column of type `actual` may become `desired`, both in the form of format_type().

    long to double is included although doubles are exact up to 2^53 only: under the newest schema every reader, not
    only this table, reads such a field as a double.
    """
    if (actual, desired) in _WIDER:
        return True
    old, new = _NUMERIC.fullmatch(actual), _NUMERIC.fullmatch(desired)
    if old is None or new is None:
        return False
    return old[2] == new[2] and int(old[1]) < int(new[1])
