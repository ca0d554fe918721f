"""Types that differ between the writer schema and the latest schema are reported, never read as different values."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest

from outbox_events.schemas.avro_schema import load
from outbox_spark.decoding.compatibility import check_writer
from outbox_spark.decoding.schema_resolution import resolvable_schema
from outbox_spark.errors import SchemaError


def logical(base: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


MILLIS = logical("long", "timestamp-millis")
MICROS = logical("long", "timestamp-micros")
CENTS = logical("bytes", "decimal", precision=12, scale=2)
UUID = logical("string", "uuid")


def record(avro_type: object, name: str = "Thing", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - Avro schema
    return {"type": "record", "name": name, "fields": [{"name": "f", "type": avro_type, **more}]}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - Avro schema
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def check(writer: object, reader: object) -> None:
    check_writer(json.dumps(record(writer)), json.dumps(record(reader)), "schema 7")


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        (MILLIS, MICROS, "field f: schema 7 has timestamp-millis; .* has timestamp-micros, and would"),
        (MICROS, MILLIS, "field f: schema 7 has timestamp-micros; .* has timestamp-millis, and would"),
        (MICROS, logical("long", "local-timestamp-micros"), "has local-timestamp-micros, and would"),
        (logical("int", "time-millis"), logical("long", "time-micros"), "has time-millis; .* has time-micros"),
        (logical("int", "date"), "int", "has date; .* has int, and would"),
        ("int", logical("int", "date"), "has int; .* has date, and would"),
        ("int", MICROS, "has int; .* has timestamp-micros, and would"),
        (CENTS, logical("bytes", "decimal", precision=12, scale=3), "decimal of scale 2; .* decimal of scale 3"),
        (CENTS, "bytes", "has decimal of scale 2; .* has bytes, and would"),
        ("string", CENTS, "has string; .* has decimal of scale 2, and would"),
        (["null", MILLIS], ["null", MICROS], "field f: "),
        (MILLIS, ["null", "string", MICROS], "field f: "),
        (["null", "string", MILLIS], [MICROS, "string"], "field f: "),
        ({"type": "array", "items": MILLIS}, {"type": "array", "items": MICROS}, r"field f\[\]: "),
        ({"type": "map", "values": ["null", MILLIS]}, {"type": "map", "values": MICROS}, "field f{}: "),
        (record(MILLIS, "In"), ["null", record(MICROS, "In")], r"field f\.f: "),
        ([record(MILLIS, "A"), record(MILLIS, "B")], [record(MICROS, "B"), record(MILLIS, "A")], r"field f\.f: "),
    ],
)
def test_rejects_a_value_that_would_change_its_meaning(writer: object, reader: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message) as caught:
        check(writer, reader)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (MILLIS, MILLIS),
        (MILLIS, ["null", MILLIS]),
        (UUID, "string"),
        ("string", UUID),
        (logical("string", "our-own"), "string"),
        (CENTS, logical("bytes", "decimal", precision=20, scale=2)),
        (CENTS, logical("bytes", "decimal", precision=5, scale=2)),
        ("int", "long"),
        ("int", "double"),
        ("long", "float"),
        ("float", "double"),
        ("string", "bytes"),
        ("bytes", "string"),
        (enum("A", "B"), enum("A")),
        (["null", enum("A", "B")], ["null", enum("A")]),
        ([record(MILLIS, "A"), record(MICROS, "B")], [record(MICROS, "B"), record(MILLIS, "A")]),
    ],
)
def test_accepts_equivalent_types(writer: object, reader: object) -> None:
    check(writer, reader)


def test_resolves_named_types() -> None:
    at = {"type": "record", "name": "At", "fields": [{"name": "t", "type": MILLIS}]}
    fields = [{"name": "a", "type": at}, {"name": "b", "type": ["null", "io.thing.At"]}, {"name": "c", "type": "At"}]
    writer = {"type": "record", "name": "Thing", "namespace": "io.thing", "fields": fields}
    changed = json.dumps({**writer, "fields": fields[:1]}).replace("timestamp-millis", "timestamp-micros")
    reader = json.loads(changed)
    reader["fields"] = [{**reader["fields"][0], "name": "b"}]
    with pytest.raises(SchemaError, match=r"field b\.t: "):
        check_writer(json.dumps(writer), json.dumps(reader), "schema 7")


def test_accepts_a_recursive_type() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    check_writer(json.dumps(node), json.dumps(node), "schema 7")


def test_resolves_a_renamed_field() -> None:
    reader = {"type": "record", "name": "Thing", "fields": [{"name": "g", "aliases": ["f"], "type": MICROS}]}
    with pytest.raises(SchemaError, match="field g: "):
        check_writer(json.dumps(record(MILLIS)), json.dumps(reader), "schema 7")


def test_accepts_fields_of_one_side_and_non_records() -> None:
    other = {"type": "record", "name": "Thing", "fields": [{"name": "g", "type": MICROS, "default": 0}]}
    check_writer(json.dumps(record(MILLIS)), json.dumps(other), "schema 7")
    check_writer('"string"', json.dumps(other), "schema 7")


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        ("string", "int", "field f: schema 7 has string; the reader schema has int, and cannot read the field"),
        ("long", "int", "has long; .* has int, and cannot"),
        ("double", "float", "has double; .* has float, and cannot"),
        (["null", "string"], "string", "has null; .* has string, and cannot"),
        (["null", "string", "int"], ["null", "string"], "has int; .* has null or string, and cannot"),
        (logical("int", "date"), "string", "has int; .* has string, and cannot"),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, "has array; .* has map, and cannot"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "has F; .* has a different F, and cannot",
        ),
    ],
)
def test_rejects_an_unreadable_version(writer: object, reader: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message) as caught:
        check(writer, reader)
    assert "schema_version" in caught.value.hint
    # A record with another name is quarantined, and the run continues.
    check_writer(json.dumps(record(writer, "Other")), json.dumps(record(reader)), "schema 7")


def test_rejects_a_missing_required_field() -> None:
    reader = {"type": "record", "name": "Thing", "fields": [{"name": "g", "type": "int"}]}
    with pytest.raises(SchemaError, match=r"field g: schema 7 .* int without a default"):
        check_writer(json.dumps(record(MILLIS)), json.dumps(reader), "schema 7")


def names(schema: str) -> list[str]:
    """Return the full names of types and the names of fields, in the order of the text."""
    actual: list[str] = []

    def walk(node: Any) -> None:  # noqa: ANN401 - any part of a schema
        if isinstance(node, list):
            for part in node:
                walk(part)
        elif isinstance(node, dict):
            actual.extend([node["name"]] if "name" in node else [])
            for part in ("type", "fields", "items", "values"):
                if not isinstance(node.get(part), str):
                    walk(node.get(part))

    walk(json.loads(schema))
    return actual


def test_writer_schema_gets_the_names_of_the_reader() -> None:
    inner = {"type": "record", "name": "In", "fields": [{"name": "e", "type": enum("A")}]}
    fields = [
        {"name": "one", "type": ["null", inner]},
        {"name": "two", "type": {"type": "array", "items": "In"}},
        {"name": "three", "type": {"type": "map", "values": {"type": "fixed", "name": "F", "size": 1}}},
    ]
    writer = {"type": "record", "name": "Old", "namespace": "a", "fields": fields}
    reader = {"type": "record", "name": "New", "namespace": "b", "fields": fields}
    result = resolvable_schema(json.dumps(writer), json.dumps(reader))
    assert names(result) == ["b.New", "one", "b.In", "e", "b.E", "two", "three", "b.F"]
    fastavro.parse_schema(json.loads(result))


def test_writer_fields_are_renamed_by_reader_aliases() -> None:
    writer = {**record("int", "Other"), "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]}
    reader = {
        **record("int"),
        "fields": [
            {"name": "c", "type": "int", "aliases": ["x", "a"]},
            {"name": "b", "type": "int", "aliases": ["a"]},
        ],
    }
    assert names(resolvable_schema(json.dumps(writer), json.dumps(reader))) == ["Thing", "c", "b"]


def test_writer_types_have_distinct_names() -> None:
    fields = [{"name": "a", "type": enum("A", name="One")}, {"name": "b", "type": enum("A", name="Two")}]
    writer = {"type": "record", "name": "Thing", "fields": [*fields, {"name": "c", "type": "One"}]}
    reader = {"type": "record", "name": "Thing", "fields": [fields[1], {"name": "a", "type": "Two"}]}
    result = resolvable_schema(json.dumps(writer), json.dumps(reader))
    fastavro.parse_schema(json.loads(result))
    assert len({name for name in names(result) if name[0].isupper() or "." in name}) == 3


def test_types_are_defined_at_their_first_use() -> None:
    schema = load(json.dumps(record([enum("A"), {"type": "array", "items": "E"}])))
    field = {"name": "g", "type": {"type": "map", "values": "E"}}
    text = schema.text({"type": "record", "name": "Part", "fields": [field]})
    fastavro.parse_schema(json.loads(text))
    assert names(text) == ["Part", "g", "E"]


@pytest.mark.parametrize("schema", ['"string"', '["null", "int"]', '{"type": "array", "items": "long"}'])
def test_non_record_schema_is_unchanged(schema: str) -> None:
    assert json.loads(resolvable_schema(schema, json.dumps(record("int")))) == json.loads(schema)
