"""Effect of a schema change on existing records. Logical types: tests/spark/decoding/test_compatibility.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outbox_common.avro_evolution import differences, field_paths

INNER = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}
WIDER = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "T", "fields": list(fields)})


def one(kind: object, **more: object) -> str:
    return record({"name": "f", "type": kind, **more})


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (one("int"), one("int")),
        (one("int"), one("long")),
        (one("int"), one(["null", "int"])),
        (one("string"), one("bytes")),
        (record(), one("int", default=0)),
        (one("int"), record()),
        (one("int"), record({"name": "g", "type": "int", "aliases": ["f"]})),
        (
            one({"type": "enum", "name": "E", "symbols": ["A"]}),
            one({"type": "enum", "name": "E", "symbols": ["B", "A"]}),
        ),
        (
            one({"type": "enum", "name": "E", "symbols": ["A", "B"]}),
            one({"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}),
        ),
        (one(WIDER), one(INNER)),
    ],
)
def test_accepts_changes_that_keep_the_meaning(writer: str, reader: str) -> None:
    assert differences(writer, reader) == []


@pytest.mark.parametrize(
    ("writer", "reader", "field", "words"),
    [
        (record(), one("int"), "f", ("nothing", "int without a default")),
        (one("long"), one("int"), "f", ("long", "int")),
        (one(["null", "int"]), one("int"), "f", ("null", "int")),
        (one("int"), one(["null", "string"]), "f", ("int", "null or string")),
        (one(INNER), one(WIDER), "f.y", ("nothing", "int without a default")),
        (one({"type": "array", "items": INNER}), one({"type": "array", "items": WIDER}), "f[].y", ("nothing", None)),
        (one({"type": "map", "values": "int"}), one({"type": "map", "values": "string"}), "f{}", ("int", "string")),
        (one(INNER), one("string"), "f", ("In", "string")),
        (
            one({"type": "enum", "name": "E", "symbols": ["A", "B"]}),
            one({"type": "enum", "name": "E", "symbols": ["A"]}),
            "f",
            ("E", "a different E"),
        ),
        (
            one({"type": "fixed", "name": "F", "size": 4}),
            one({"type": "fixed", "name": "F", "size": 8}),
            "f",
            ("F", "a different F"),
        ),
    ],
)
def test_reports_unreadable_fields(writer: str, reader: str, field: str, words: tuple[str, str | None]) -> None:
    (actual,) = differences(writer, reader)
    assert (actual.field, actual.readable) == (field, False)
    assert actual.written == words[0]
    assert actual.expected == (words[1] or actual.expected)


def test_reports_changed_meaning_as_readable() -> None:
    (actual,) = differences(one({"type": "int", "logicalType": "date"}), one("int"))
    assert (actual.field, actual.written, actual.expected, actual.readable) == ("f", "date", "int", True)


def test_terminates_for_a_recursive_type() -> None:
    tree = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}
    assert differences(json.dumps(tree), json.dumps(tree)) == []
    assert field_paths(json.dumps(tree)) == {"next"}


def test_field_paths_cover_records_arrays_maps_and_unions() -> None:
    schema = record(
        {"name": "a", "type": "int"},
        {"name": "b", "type": ["null", INNER]},
        {"name": "c", "type": {"type": "array", "items": "In"}},
        {"name": "d", "type": {"type": "map", "values": {"type": "array", "items": "In"}}},
    )
    assert field_paths(schema) == {"a", "b", "b.x", "c", "c.x", "d", "d.x"}
