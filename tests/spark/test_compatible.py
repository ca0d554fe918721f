"""Logical types that a writer and the newest schema do not share: told, never read as another value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outbox_spark.compatible import check_writer
from outbox_spark.errors import SchemaError


def logical(base: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


MILLIS = logical("long", "timestamp-millis")
MICROS = logical("long", "timestamp-micros")
CENTS = logical("bytes", "decimal", precision=12, scale=2)
UUID = logical("string", "uuid")


def record(avro_type: object, name: str = "Thing", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - Avro schema
    return {"type": "record", "name": name, "fields": [{"name": "f", "type": avro_type, **more}]}


def check(writer: object, reader: object) -> None:
    check_writer(json.dumps(record(writer)), json.dumps(record(reader)), "schema 7")


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        (MILLIS, MICROS, "field f: schema 7 writes timestamp-millis; .* as timestamp-micros"),
        (MICROS, MILLIS, "field f: schema 7 writes timestamp-micros; .* as timestamp-millis"),
        (MICROS, logical("long", "local-timestamp-micros"), "as local-timestamp-micros"),
        (logical("int", "time-millis"), logical("long", "time-micros"), "writes time-millis; .* as time-micros"),
        (logical("int", "date"), "int", "writes date; .* as int"),
        ("int", logical("int", "date"), "writes int; .* as date"),
        ("int", MICROS, "writes int; .* as timestamp-micros"),
        (CENTS, logical("bytes", "decimal", precision=12, scale=3), "decimal of scale 2; .* decimal of scale 3"),
        (CENTS, "bytes", "writes decimal of scale 2; .* as bytes"),
        ("string", CENTS, "writes string; .* as decimal of scale 2"),
        (["null", MILLIS], ["null", MICROS], "field f: "),
        (MILLIS, ["null", "string", MICROS], "field f: "),
        (["null", "string", MILLIS], [MICROS, "string"], "field f: "),
        ({"type": "array", "items": MILLIS}, {"type": "array", "items": MICROS}, r"field f\[\]: "),
        ({"type": "map", "values": ["null", MILLIS]}, {"type": "map", "values": MICROS}, "field f{}: "),
        (record(MILLIS, "In"), ["null", record(MICROS, "In")], r"field f\.f: "),
        ([record(MILLIS, "A"), record(MILLIS, "B")], [record(MICROS, "B"), record(MILLIS, "A")], r"field f\.f: "),
    ],
)
def test_a_value_that_would_be_read_as_another_is_refused(writer: object, reader: object, message: str) -> None:
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
        ("int", "long"),
        (logical("int", "date"), "string"),
        ([record(MILLIS, "A"), record(MICROS, "B")], [record(MICROS, "B"), record(MILLIS, "A")]),
    ],
)
def test_what_means_the_same_or_cannot_be_resolved_passes(writer: object, reader: object) -> None:
    check(writer, reader)


def test_names_are_followed() -> None:
    at = {"type": "record", "name": "At", "fields": [{"name": "t", "type": MILLIS}]}
    fields = [{"name": "a", "type": at}, {"name": "b", "type": ["null", "io.thing.At"]}, {"name": "c", "type": "At"}]
    writer = {"type": "record", "name": "Thing", "namespace": "io.thing", "fields": fields}
    changed = json.dumps({**writer, "fields": fields[:1]}).replace("timestamp-millis", "timestamp-micros")
    reader = json.loads(changed)
    reader["fields"] = [{**reader["fields"][0], "name": "b"}]
    with pytest.raises(SchemaError, match=r"field b\.t: "):
        check_writer(json.dumps(writer), json.dumps(reader), "schema 7")


def test_a_type_that_contains_itself() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    check_writer(json.dumps(node), json.dumps(node), "schema 7")


def test_a_field_that_was_renamed() -> None:
    reader = {"type": "record", "name": "Thing", "fields": [{"name": "g", "aliases": ["f"], "type": MICROS}]}
    with pytest.raises(SchemaError, match="field g: "):
        check_writer(json.dumps(record(MILLIS)), json.dumps(reader), "schema 7")


def test_fields_of_one_side_only_and_no_record_at_all() -> None:
    other = {"type": "record", "name": "Thing", "fields": [{"name": "g", "type": MICROS}]}
    check_writer(json.dumps(record(MILLIS)), json.dumps(other), "schema 7")
    check_writer('"string"', json.dumps(other), "schema 7")
