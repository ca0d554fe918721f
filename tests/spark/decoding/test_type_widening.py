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
def test_wider_types_hold_what_is_there_and_not_the_other_way(found: str, wanted: str) -> None:
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
def test_other_changes_are_no_widening(found: str, wanted: str) -> None:
    assert not widens(found, wanted)
