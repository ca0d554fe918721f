"""Comparison of rows: different notations of a value are equal, and any different value is reported."""

# ruff: noqa: ANN401  (values of any type are what is compared)

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_events.errors import ConfigurationError
from outbox_kit.demo.compare_values import (
    MAX_EXAMPLES,
    Comparison,
    DifferentRow,
    canonical_conversions,
    compare,
    json_rows,
)
from outbox_kit.pipeline.avro import read_definition

BOOK = read_definition(Path(__file__).parents[3] / "schemas" / "book.avsc")


def source_row(**changes: Any) -> dict[str, Any]:
    """Return a row as psycopg reads it from the business table."""
    row = {
        "id": UUID(int=1),
        "author_id": UUID(int=2),
        "title": "A",
        "subtitle": None,
        "tags": ["x", ""],
        "price": Decimal("1.50"),
        "published_on": date(1583, 1, 1),
        "status": "LENT",
        "pages": 12,
        "updated_at": datetime(2024, 5, 6, 7, 8, 9, 123450, timezone(timedelta(hours=2))),
    }
    return {**row, **changes}


def target_row(**changes: Any) -> dict[str, Any]:
    """Return the same row as psycopg reads it from the materialized table, with metadata columns."""
    row = {**source_row(), "aggregate_id": str(UUID(int=1)), "_source_sequence": "0001", "_offset": 7}
    return {**row, "updated_at": datetime(2024, 5, 6, 5, 8, 9, 123450, UTC), **changes}


def text_row(**changes: Any) -> dict[str, Any]:
    """Return the same row in the JSON export of a lake table."""
    row = {
        "aggregate_id": "00000000-0000-0000-0000-000000000001",
        "id": "00000000-0000-0000-0000-000000000001",
        "author_id": "00000000-0000-0000-0000-000000000002",
        "title": "A",
        "subtitle": None,
        "tags": '["x", ""]',
        "price": "1.50",
        "published_on": "1583-01-01",
        "status": "LENT",
        "pages": 12,
        "updated_at": "2024-05-06T05:08:09.12345Z",
    }
    return {**row, **changes}


def books(source: list[dict[str, Any]], rows: list[dict[str, Any]]) -> Comparison:
    return compare("book", "warehouse", schema=BOOK, source=source, rows=rows)


@pytest.mark.parametrize("row", [target_row(), text_row(), text_row(tags=["x", ""], price=Decimal("1.5"), pages="12")])
def test_equal_values_in_different_notations_match(row: dict[str, Any]) -> None:
    result = books([source_row()], [row])
    assert result.match
    assert (result.source_rows, result.target_rows) == (1, 1)
    assert result.summary() == "warehouse book: 1 rows, all equal"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", UUID(int=3)),
        ("title", "a"),
        ("title", "A "),
        ("title", None),
        ("title", 1),
        ("subtitle", ""),
        ("subtitle", "null"),
        ("tags", ["x"]),
        ("tags", ["", "x"]),
        ("tags", ["x", None]),
        ("tags", "no json"),
        ("tags", '{"x": 1}'),
        ("tags", None),
        ("price", Decimal("1.51")),
        ("price", 1.5),  # a float, although its value is exact
        ("price", "much"),
        ("price", Decimal("NaN")),
        ("published_on", date(1582, 12, 22)),  # the same day in the Julian calendar
        ("published_on", datetime(1583, 1, 1, tzinfo=UTC)),
        ("status", "LOST"),
        ("pages", 13),
        ("pages", 12.0),
        ("pages", True),
        ("updated_at", datetime(2024, 5, 6, 5, 8, 9, 123451, UTC)),
        ("updated_at", datetime(2024, 5, 6, 5, 8, 9, 123450)),
        ("updated_at", "2024-05-06T05:08:09.123450"),
    ],
)
def test_reports_one_different_column(column: str, value: Any) -> None:
    result = books([source_row()], [target_row(**{column: value})])
    assert not result.match
    assert result.different == (DifferentRow(str(UUID(int=1)), (column,)),)


@given(value=st.none() | st.text() | st.integers() | st.floats() | st.lists(st.text()) | st.binary() | st.datetimes())
def test_compares_any_value(value: Any) -> None:
    for column in canonical_conversions(BOOK):
        result = books([source_row()], [target_row(**{column: value})])
        assert result.target_rows == 1


def test_missing_column_differs_from_null() -> None:
    row = target_row()
    del row["subtitle"]
    assert books([source_row()], [row]).different[0].columns == ("subtitle",)


def test_ignores_columns_outside_the_schema() -> None:
    assert books([source_row(shelf="7")], [target_row(_x=1, retired_field="y")]).match


def test_reports_missing_unexpected_and_duplicate_rows() -> None:
    unexpected = UUID(int=9)
    result = books(
        [source_row(), source_row(id=UUID(int=5))],
        [target_row(), target_row(), target_row(id=unexpected, aggregate_id=str(unexpected))],
    )
    assert not result.match
    assert result.missing == (str(UUID(int=5)),)
    assert result.unexpected == (str(unexpected),)
    assert result.duplicated == (str(UUID(int=1)),)
    assert (result.source_rows, result.target_rows) == (2, 3)
    assert result.summary() == "warehouse book: 2 rows, 1 missing, 1 unexpected, 1 duplicated"


def test_lists_the_first_keys_and_counts_all() -> None:
    keys = sorted((uuid4() for _ in range(MAX_EXAMPLES + 5)), key=str)
    result = books([source_row(id=key) for key in keys], [])
    assert result.missing_count == MAX_EXAMPLES + 5
    assert result.missing == tuple(map(str, keys[:MAX_EXAMPLES]))


def test_result_contains_no_values() -> None:
    result = books([source_row(title="s3cr3t")], [target_row(title="s3cr3t too")])
    assert "s3cr3t" not in repr(result) + result.summary()


def test_empty_sides_match() -> None:
    assert books([], []).match


@given(st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**10), max_value=10**10))
def test_decimals_as_text_are_equal(price: Decimal) -> None:
    assert books([source_row(price=price)], [text_row(price=str(price))]).match


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)), st.timezones())
def test_instants_are_equal_in_any_zone(moment: datetime, zone: Any) -> None:
    at = moment.replace(tzinfo=UTC)
    assert books([source_row(updated_at=at)], [target_row(updated_at=at.astimezone(zone))]).match


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_arrays_as_json_text_are_equal(tags: list[str]) -> None:
    assert books([source_row(tags=tags)], [text_row(tags=json.dumps(tags))]).match


class TestSchemas:
    def test_supports_every_simple_type(self) -> None:
        fields = [
            {"name": "flag", "type": "boolean"},
            {"name": "ratio", "type": ["null", "double"]},
            {"name": "size", "type": "long"},
            {"name": "sizes", "type": {"type": "array", "items": ["null", "long"]}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ]
        source = {"id": "1", "flag": True, "ratio": 0.5, "size": 2**40, "sizes": [1, None]}
        source["at"] = datetime(2024, 1, 1, tzinfo=UTC)
        equal = {**source, "sizes": "[1, null]", "at": "2024-01-01T00:00:00Z"}
        different = {**source, "flag": "true", "ratio": True, "size": 1.0, "sizes": [1, 0], "at": 0}
        schema = {"fields": fields}
        assert compare("a", "t", schema=schema, source=[source], rows=[equal]).match
        result = compare("a", "t", schema=schema, source=[source], rows=[different])
        assert result.different[0].columns == ("flag", "ratio", "size", "sizes", "at")

    @pytest.mark.parametrize(
        "avro",
        [
            "bytes",
            ["string", "int"],
            {"type": "map", "values": "string"},
            {"type": "record", "name": "R", "fields": []},
            {"type": "array", "items": "bytes"},
        ],
    )
    def test_rejects_unsupported_types(self, avro: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"field x: .*Avro type"):
            canonical_conversions({"fields": [{"name": "x", "type": avro}]})


class TestJsonRows:
    def test_reads_lines_of_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "rows.json"
        rows = [{"id": "1", "title": "a\u2028b\x85c\r"}, {"id": "2", "price": "1.50"}]
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows) + "\n", "utf-8")
        assert list(json_rows(file)) == rows

    def test_reads_all_files_of_a_folder(self, tmp_path: Path) -> None:
        for part in ("part-1.json", "part-0.json"):
            (tmp_path / part).write_text(f'{{"id": "{part}"}}\n', "utf-8")
        (tmp_path / "_SUCCESS").write_text("", "utf-8")
        assert [row["id"] for row in json_rows(tmp_path)] == ["part-0.json", "part-1.json"]

    def test_keeps_decimals_exact(self, tmp_path: Path) -> None:
        file = tmp_path / "rows.json"
        file.write_text('{"price": 9999999999.99}', "utf-8")
        assert list(json_rows(file)) == [{"price": Decimal("9999999999.99")}]

    def test_rejects_an_empty_export(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"exported rows .* do not exist"):
            list(json_rows(tmp_path / "book"))
