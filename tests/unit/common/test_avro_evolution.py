"""Effect of a schema change on existing records. tests/spark/decoding/test_compatibility.py tests logical types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outbox_common.avro_evolution import differences, field_paths

WITH_ONE_FIELD = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}
WITH_SECOND_FIELD = {
    "type": "record",
    "name": "In",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}],
}


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "T", "fields": list(fields)})


def single_field(kind: object, **attributes: object) -> str:
    return record({"name": "f", "type": kind, **attributes})


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (single_field("int"), single_field("int")),
        (single_field("int"), single_field("long")),
        (single_field("int"), single_field(["null", "int"])),
        (single_field("string"), single_field("bytes")),
        (record(), single_field("int", default=0)),
        (single_field("int"), record()),
        (single_field("int"), record({"name": "g", "type": "int", "aliases": ["f"]})),
        (
            single_field({"type": "enum", "name": "E", "symbols": ["A"]}),
            single_field({"type": "enum", "name": "E", "symbols": ["B", "A"]}),
        ),
        (
            single_field({"type": "enum", "name": "E", "symbols": ["A", "B"]}),
            single_field({"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}),
        ),
        (single_field(WITH_SECOND_FIELD), single_field(WITH_ONE_FIELD)),
    ],
)
def test_accepts_changes_that_keep_the_meaning(writer: str, reader: str) -> None:
    assert differences(writer, reader) == []


@pytest.mark.parametrize(
    ("writer", "reader", "field", "types"),
    [
        (record(), single_field("int"), "f", ("nothing", "int without a default")),
        (single_field("long"), single_field("int"), "f", ("long", "int")),
        (single_field(["null", "int"]), single_field("int"), "f", ("null", "int")),
        (single_field("int"), single_field(["null", "string"]), "f", ("int", "null or string")),
        (single_field(WITH_ONE_FIELD), single_field(WITH_SECOND_FIELD), "f.y", ("nothing", "int without a default")),
        (
            single_field({"type": "array", "items": WITH_ONE_FIELD}),
            single_field({"type": "array", "items": WITH_SECOND_FIELD}),
            "f[].y",
            ("nothing", None),
        ),
        (
            single_field({"type": "map", "values": "int"}),
            single_field({"type": "map", "values": "string"}),
            "f{}",
            ("int", "string"),
        ),
        (single_field(WITH_ONE_FIELD), single_field("string"), "f", ("In", "string")),
        (
            single_field({"type": "enum", "name": "E", "symbols": ["A", "B"]}),
            single_field({"type": "enum", "name": "E", "symbols": ["A"]}),
            "f",
            ("E", "a different E"),
        ),
        (
            single_field({"type": "fixed", "name": "F", "size": 4}),
            single_field({"type": "fixed", "name": "F", "size": 8}),
            "f",
            ("F", "a different F"),
        ),
    ],
)
def test_reports_unreadable_fields(writer: str, reader: str, field: str, types: tuple[str, str | None]) -> None:
    (actual,) = differences(writer, reader)
    assert (actual.field, actual.readable) == (field, False)
    assert actual.written == types[0]
    assert actual.expected == (types[1] or actual.expected)


def test_reports_changed_meaning_as_readable() -> None:
    (actual,) = differences(single_field({"type": "int", "logicalType": "date"}), single_field("int"))
    assert (actual.field, actual.written, actual.expected, actual.readable) == ("f", "date", "int", True)


def test_terminates_for_a_recursive_type() -> None:
    recursive = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}
    assert differences(json.dumps(recursive), json.dumps(recursive)) == []
    assert field_paths(json.dumps(recursive)) == {"next"}


def test_field_paths_cover_records_arrays_maps_and_unions() -> None:
    schema = record(
        {"name": "a", "type": "int"},
        {"name": "b", "type": ["null", WITH_ONE_FIELD]},
        {"name": "c", "type": {"type": "array", "items": "In"}},
        {"name": "d", "type": {"type": "map", "values": {"type": "array", "items": "In"}}},
    )
    assert field_paths(schema) == {"a", "b", "b.x", "c", "c.x", "d", "d.x"}
