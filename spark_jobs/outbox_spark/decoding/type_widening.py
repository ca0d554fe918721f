"""Which changes of a column's type keep every value that is stored. Pure: types by their names in PostgreSQL."""

from __future__ import annotations

import re

from outbox_spark.decoding.columns import Kind

_WIDER = frozenset(
    {
        # The promotions that Avro's schema resolution makes, but for those that round: int and long to float.
        (Kind.INTEGER, Kind.BIGINT),
        (Kind.INTEGER, Kind.DOUBLE),
        (Kind.BIGINT, Kind.DOUBLE),
        (Kind.REAL, Kind.DOUBLE),
    }
)
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")


def widens(found: str, wanted: str) -> bool:
    """Whether a column of type `found` may become `wanted`, both as format_type() prints them.

    long to double is among them although doubles hold whole numbers up to 2^53 only: the newest schema has every
    reader, not only this table, see such a field as a double.
    """
    if (found, wanted) in _WIDER:
        return True
    old, new = _NUMERIC.fullmatch(found), _NUMERIC.fullmatch(wanted)
    if old is None or new is None:
        return False
    return old[2] == new[2] and int(old[1]) < int(new[1])
