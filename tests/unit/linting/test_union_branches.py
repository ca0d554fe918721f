"""Unions whose branch is selected by the data of a payload."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outbox_kit.linting.union_branches import Ambiguity, find_ambiguities

MICROS = {"type": "long", "logicalType": "timestamp-micros"}
UUID = {"type": "string", "logicalType": "uuid"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
TEXTS = {"type": "map", "values": "string"}


def record(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any schema
    """Return a record. A tuple stands for a field with a default, and contains the type and the default."""
    definitions = [
        {"name": field, "type": kind[0], "default": kind[1]}
        if isinstance(kind, tuple)
        else {"name": field, "type": kind}
        for field, kind in fields.items()
    ]
    return {"type": "record", "name": name, "fields": definitions}


def symbols(name: str, *values: str) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": values}


def ambiguities(union: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - any schema
    found = find_ambiguities(json.dumps(record("R", f=union)))
    return [(entry.first, entry.second) for entry in found if entry.location == "R.f"]


@pytest.mark.parametrize(
    ("union", "pair"),
    [
        (["bytes", "string"], ("bytes", "string")),
        (["string", "bytes"], ("string", "bytes")),
        (["float", "int"], ("float", "int")),
        (["float", "double"], ("float", "double")),
        (["double", "long"], ("double", "long")),
        ([MICROS, "string"], ("timestamp-micros", "string")),
        ([DECIMAL, "double"], ("decimal", "double")),
        ([DECIMAL, "string"], ("decimal", "string")),
        ([symbols("A", "X", "Y"), symbols("B", "Y", "Z")], ("enum A", "enum B")),
        ([symbols("A", "X"), "bytes"], ("enum A", "bytes")),
        ([record("A", x="int"), record("B", x="int", y=("int", 0))], ("record A", "record B")),
        ([record("A", x="int", y=("int", 0)), record("B", x="int")], ("record A", "record B")),
        ([record("A", x=("int", 0)), record("B", y=("int", 0))], ("record A", "record B")),
        ([record("A", x="string"), TEXTS], ("record A", "map")),
        ({"type": "array", "items": ["bytes", "string"]}, ("bytes", "string")),
        ({"type": "map", "values": ["null", "bytes", "string"]}, ("bytes", "string")),
        (["null", record("A", a=(["null", "A"], None)), record("B", a=["A", "B"])], ("record A", "record B")),
    ],
)
def test_value_that_fits_two_branches_is_found(union: Any, pair: tuple[str, str]) -> None:  # noqa: ANN401
    assert ambiguities(union) == [pair]


@pytest.mark.parametrize(
    "union",
    [
        ["null", "string"],
        ["null", "int", "long", "double", "string", "boolean"],
        ["long", DECIMAL],
        ["double", "float"],
        [symbols("A", "X"), "string"],
        [UUID, symbols("A", "X")],
        [symbols("A", "X"), symbols("B", "Y")],
        [MICROS, UUID],
        ["int", record("A", x="int"), {"type": "array", "items": "int"}],
        [record("A", x="int"), record("B", y="int")],
        [record("A", x="int"), record("B", x="int", y="int")],
        [record("A", kind=symbols("KA", "a"), x="int"), record("B", kind=symbols("KB", "b"), x="int")],
        [record("A", x="int"), TEXTS],
        [record("A", x=["null", "string"]), record("B", x={"type": "array", "items": "int"})],
    ],
)
def test_other_unions_pass(union: Any) -> None:  # noqa: ANN401
    assert ambiguities(union) == []


def test_unions_of_every_record_are_found_once() -> None:
    inner = record("Inner", g=["bytes", "string"])
    schema = record("Outer", a=inner, b=["null", "Inner"], c={"type": "array", "items": "Inner"})
    assert find_ambiguities(json.dumps({**schema, "namespace": "n"})) == [Ambiguity("n.Inner.g", "bytes", "string")]
