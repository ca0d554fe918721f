"""Avro types and names of the fields of a state."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.init.tables import by_name, column, key, table

from outbox_common.column_problems import column_problems
from outbox_events.schemas.avro_schema import load
from outbox_kit.init.aggregates import AggregateTables, Node, parse
from outbox_kit.init.catalog import Column, ColumnType
from outbox_kit.init.fields import open_choices, schema, state_fields


def aggregate_of(*columns: Column) -> AggregateTables:
    return AggregateTables("thing", Node(replace(table("thing"), columns=columns)))


def field(entry: Column) -> dict[str, Any]:
    """Return the field of the schema of a table with this column only."""
    fields: list[dict[str, Any]] = schema(aggregate_of(entry), "shop")["fields"]
    return fields[0]


def numeric(precision: int, scale: int) -> dict[str, object]:
    """Return the values of the type numeric(precision, scale)."""
    return {"modifier": (precision << 16 | scale & 0x7FF) + 4}


def decimal(precision: int, scale: int) -> dict[str, object]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (column("x", "bool"), "boolean"),
        (column("x", "int2"), "int"),
        (column("x", "int8"), "long"),
        (column("x", "float4"), "float"),
        (column("x", "bytea"), "bytes"),
        (column("x", "citext"), "string"),
        (column("x", "inet"), "string"),
        (column("x", "date", is_builtin=False), "string"),
        (column("x", "timetz"), "string"),
        (column("x", "uuid"), {"type": "string", "logicalType": "uuid"}),
        (column("x", "timestamp"), {"type": "long", "logicalType": "local-timestamp-micros"}),
        (column("x", "timestamptz"), {"type": "long", "logicalType": "timestamp-micros"}),
        (
            column("x", "numeric", **numeric(38, 6)),
            {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 6},
        ),
        (column("x", "numeric"), "string"),
        (column("x", "numeric", **numeric(39, 6)), "string"),
        (column("x", "numeric", **numeric(3, 5)), "string"),
        (column("x", "numeric", **numeric(3, -2)), "string"),
        (column("x", "state", labels=("NEW", "OLD")), {"type": "enum", "name": "ThingX", "symbols": ["NEW", "OLD"]}),
        (column("x", "state", labels=("in use",)), "string"),
        (column("x", "_int4", element=ColumnType("int4")), {"type": "array", "items": ["null", "int"]}),
        (column("x", "_d", element=ColumnType("_int4", element=ColumnType("int4"))), "string"),
        (column("x", "_text", element=ColumnType("text")), {"type": "array", "items": ["null", "string"]}),
    ],
)
def test_types(entry: Column, expected: object) -> None:
    assert field(entry) == {**field(entry), "name": "x", "type": expected}
    nullable = field(replace(entry, is_nullable=True))
    assert nullable["type"] == ["null", expected]
    assert nullable["default"] is None


def test_names_the_fields_whose_type_is_a_choice() -> None:
    array = column("e", "_interval", element=ColumnType("interval"))
    columns = (column("a", "jsonb"), column("b", "text"), column("c", "numeric"), column("d", "int8"), array)
    assert [choice.partition(":")[0] for choice in open_choices(state_fields(aggregate_of(*columns)))] == [
        "a",
        "c",
        "e",
    ]


def test_names_are_valid_columns_of_every_target() -> None:
    names = [
        "full name",
        "1st",
        "aggregate_id",
        "_offset",
        "ctid",
        "_pos",
        "Name",
        "name",
        "name_2",
        "ключ",
        "__outbox_x",
    ]
    definition = schema(aggregate_of(*map(column, names)), "shop")
    problems = list(column_problems(load(json.dumps(definition)), ("postgres", "delta", "iceberg")))
    assert problems == []
    assert len({entry["name"].lower() for entry in definition["fields"]}) == len(names)


def test_enums_and_records_have_different_names() -> None:
    parts = table("part", "root_id no", "root_id no", (key("root_id", "shop.root"),))
    labels = {"labels": ("A", "B")}
    root = replace(
        table("root"), columns=(column("id"), column("part", "kind", **labels), column("part_kind", "k", **labels))
    )
    parts = replace(parts, columns=(*parts.columns, column("kind", "k", **labels)))
    (aggregate,) = parse(["root=shop.root,shop.part"], by_name(root, parts))
    load(json.dumps(schema(aggregate, "shop")))  # raises an error for a name that is defined twice


def test_parts_are_arrays_or_single_records() -> None:
    many = table("many", "root_id no", "root_id no", (key("root_id", "shop.root"),))
    single = table("single", "root_id", "root_id", (key("root_id", "shop.root"),))
    (aggregate,) = parse(["root=shop.root,shop.many,shop.single"], by_name(table("root"), many, single))
    fields = {entry["name"]: entry for entry in schema(aggregate, "shop")["fields"]}
    assert fields["many"]["type"]["type"] == "array"
    assert fields["many"]["default"] == []
    assert fields["single"]["type"][0] == "null"
    assert fields["single"]["default"] is None
