"""Which changes of type a table follows."""

from __future__ import annotations

import pytest

from outbox_spark.decoding.type_widening import widens


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ("integer", "bigint"),
        ("integer", "double precision"),
        ("bigint", "double precision"),
        ("real", "double precision"),
        ("numeric(4,2)", "numeric(12,2)"),
    ],
)
def test_widens_types_in_one_direction_only(found: str, wanted: str) -> None:
    assert widens(found, wanted)
    assert not widens(wanted, found)


@pytest.mark.parametrize(
    ("found", "wanted"),
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
def test_rejects_other_type_changes(found: str, wanted: str) -> None:
    assert not widens(found, wanted)
