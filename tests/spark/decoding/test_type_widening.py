"""Changes of a column's type that a table supports."""

from __future__ import annotations

import pytest

from outbox_spark.decoding.columns import is_widening


@pytest.mark.parametrize(
    ("actual", "desired"),
    [
        ("integer", "bigint"),
        ("integer", "double precision"),
        ("bigint", "double precision"),
        ("real", "double precision"),
        ("numeric(4,2)", "numeric(12,2)"),
    ],
)
def test_widens_types_in_one_direction_only(actual: str, desired: str) -> None:
    assert is_widening(actual, desired)
    assert not is_widening(desired, actual)


@pytest.mark.parametrize(
    ("actual", "desired"),
    [
        ("integer", "integer"),
        ("bigint", "real"),
        ("integer", "text"),
        ("text", "uuid"),
        ("date", "timestamp with time zone"),
        ("numeric(4,2)", "numeric(12,3)"),
        ("numeric(4,2)", "numeric(4,2)"),
        ("numeric(4,2)", "double precision"),
        ("numeric", "numeric(4,2)"),
        ("character varying(10)", "character varying(20)"),
    ],
)
def test_rejects_other_type_changes(actual: str, desired: str) -> None:
    assert not is_widening(actual, desired)
