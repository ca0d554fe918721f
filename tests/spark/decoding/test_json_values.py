"""The JSON that is valid for each Avro type according to docs/smt-payloads.md, which the transform also implements."""

from __future__ import annotations

import base64
import json
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from outbox_spark.decoding.json_values import with_records


def logical(base: str, logical_type: str, **more: object) -> dict[str, object]:
    return {"type": base, "logicalType": logical_type, **more}


MICROS = logical("long", "timestamp-micros")
CENTS = logical("bytes", "decimal", precision=6, scale=2)
INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [
        {"name": "at", "type": MICROS},
        {"name": "cents", "type": ["null", CENTS], "default": None},
        {"name": "unit", "type": {"type": "enum", "name": "Unit", "symbols": ["EUR", "USD"]}, "default": "USD"},
    ],
}
TYPES: dict[str, Any] = {
    "small": "int",
    "large": "long",
    "single": "float",
    "double": "double",
    "flag": "boolean",
    "text": "string",
    "raw": "bytes",
    "two": {"type": "fixed", "name": "Two", "size": 2},
    "state": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]},
    "cents": CENTS,
    "big": logical("fixed", "decimal", name="Big", size=16, precision=38, scale=0),
    "day": logical("int", "date"),
    "clock": logical("int", "time-millis"),
    "exact_clock": logical("long", "time-micros"),
    "at": MICROS,
    "at_millis": logical("long", "timestamp-millis"),
    "local": logical("long", "local-timestamp-micros"),
    "id": logical("string", "uuid"),
    "id_bytes": logical("fixed", "uuid", name="Uuid", size=16),
    "tags": {"type": "array", "items": ["null", CENTS]},
    "days": {"type": "map", "values": logical("int", "date")},
    "inner": INNER,
    "several": ["null", "boolean", "int", MICROS, "string", {"type": "array", "items": "int"}],
    "whole": ["int", "long"],
    "unit": "Unit",
}
SCHEMA = {
    "type": "record",
    "name": "Thing",
    "fields": [
        # Nullable, so that each case needs only one member. Unions are unchanged.
        {"name": name, "type": t if isinstance(t, list) else ["null", t], "default": None if t != TYPES["whole"] else 0}
        for name, t in TYPES.items()
    ],
}


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


U = "6a6b0e1c-0a0b-4c0d-8e0f-0123456789ab"
NOON = utc(2026, 11, 20, 18, 31, 38, 123456)
GOOD: list[tuple[str, str, object]] = [
    ("small", "-2147483648", -(2**31)),
    ("small", "1.0", 1),
    ("small", "1e3", 1000),
    ("small", "null", None),
    ("large", "9223372036854775807", 2**63 - 1),
    ("single", "0.5", 0.5),
    ("single", "16777216", 16777216.0),
    ("double", "0.1", 0.1),
    ("double", "-1.5e300", -1.5e300),
    ("flag", "false", False),
    ("text", r'"\u00e9\ud83d\ude00 \"\\ud83d"', 'é😀 "\\ud83d'),
    ("text", '""', ""),
    ("raw", json.dumps("\\x00ff"), b"\x00\xff"),
    ("raw", json.dumps("\\x"), b""),
    ("raw", json.dumps(base64.b64encode(b"\x00\xff\\").decode()), b"\x00\xff\\"),
    ("raw", '""', b""),
    ("two", json.dumps("\\x0102"), b"\x01\x02"),
    ("state", '"OLD"', "OLD"),
    ("cents", "12.3", Decimal("12.30")),
    ("cents", "-9999.99", Decimal("-9999.99")),
    ("cents", "1.500", Decimal("1.50")),
    ("cents", '"0.01"', Decimal("0.01")),
    ("cents", "1e2", Decimal("100.00")),
    ("big", "9" * 38, Decimal("9" * 38)),
    ("big", f'"-{"9" * 38}"', Decimal("-" + "9" * 38)),
    ("day", '"1492-10-12"', date(1492, 10, 12)),
    ("day", "-1", date(1969, 12, 31)),
    ("clock", '"18:31:38.123"', 66_698_123),
    ("clock", "86399999", 86_399_999),
    ("exact_clock", '"00:00:01.5"', 1_500_000),
    ("exact_clock", '"23:59:59"', 86_399_000_000),
    ("at", '"2026-11-20T18:31:38.123456+00:00"', NOON),
    ("at", '"2026-11-20 18:31:38.123456Z"', NOON),
    ("at", '"2026-11-20T20:01:38.123456+01:30"', NOON),
    ("at", '"2026-11-20T19:31:38.123456+01"', NOON),
    ("at", '"2026-11-20T17:31:38.123456-0100"', NOON),
    ("at", "1795199498123456", NOON),
    ("at_millis", '"2026-11-20T18:31:38.123000Z"', NOON.replace(microsecond=123000)),
    ("at_millis", "1795199498123", NOON.replace(microsecond=123000)),
    ("local", '"2026-03-29T02:30:00.000001"', datetime(2026, 3, 29, 2, 30, 0, 1)),
    ("local", "1774751400000001", datetime(2026, 3, 29, 2, 30, 0, 1)),
    ("id", json.dumps(U), U),
    ("id_bytes", json.dumps(U.upper()), uuid.UUID(U).bytes),
    ("tags", '[1, null, "2.50"]', [Decimal("1.00"), None, Decimal("2.50")]),
    ("tags", "[]", []),
    ("days", '{"a b": "2026-01-01", "": 0}', {"a b": date(2026, 1, 1), "": date(1970, 1, 1)}),
    ("inner", '{"at": 0, "x": 1}', {"at": utc(1970, 1, 1), "cents": None, "unit": "USD"}),
    ("inner", '{"at": 0, "cents": 1, "unit": "EUR"}', {"at": utc(1970, 1, 1), "cents": Decimal(1), "unit": "EUR"}),
    ("several", "7", [None, 7, None, None, None]),
    ("several", "3000000000", [None, None, utc(1970, 1, 1, 0, 50), None, None]),
    ("several", '"2026-11-20T18:31:38.123456Z"', [None, None, NOON, None, None]),
    ("several", '"x"', [None, None, None, "x", None]),
    ("several", "[1]", [None, None, None, None, [1]]),
    ("several", "null", None),
    ("whole", "3000000000", 3_000_000_000),
    ("unit", '"EUR"', "EUR"),
]
BAD: list[tuple[str, str]] = [
    ("small", "2147483648"), ("small", "1.5"), ("small", '"1"'), ("small", "true"), ("small", "[1]"), ("small", "1e10"),
    ("large", "9223372036854775808"), ("large", "1e19"), ("large", "0.1"),
    ("single", "1e39"), ("single", '"0.5"'), ("double", "1e400"), ("double", '"NaN"'), ("double", "true"),
    ("flag", "0"), ("flag", '"true"'), ("text", "1"), ("text", "{}"), ("text", "false"),
    ("raw", json.dumps("\\x0")), ("raw", '"%"'), ("raw", "1"), ("two", json.dumps("\\x01")), ("two", '"AQID"'),
    ("state", '"new"'), ("state", "0"),
    ("cents", "0.001"), ("cents", "10000"), ("cents", '"1,5"'), ("cents", '"1e2"'), ("cents", "1.5e0"),
    ("cents", '"NaN"'), ("cents", "true"), ("big", "1" + "0" * 38), ("big", "0.5"),
    ("day", '"2026-02-30"'), ("day", '"2026-1-1"'), ("day", '"12026-01-01"'), ("day", '"2026-01-01T00:00:00Z"'),
    ("day", "3000000000"), ("day", '"infinity"'), ("clock", '"24:00:00"'), ("clock", '"18:31"'), ("clock", "86400000"),
    ("clock", '"18:31:38.1234"'), ("clock", "-1"), ("exact_clock", '"18:60:00"'),
    ("at", '"2026-11-20T18:31:38"'), ("at", '"2026-11-20T18:31:38.1234567Z"'), ("at", '"2026-11-31T18:31:38Z"'),
    ("at", '"infinity"'), ("at", '"0044-03-15T12:00:00+00:00 BC"'), ("at", "1.5"),
    ("at_millis", '"2026-11-20T18:31:38.123456Z"'), ("at_millis", "9223372036854775807"),
    ("local", '"2026-03-29T02:30:00Z"'), ("local", '"2026-03-29"'),
    ("id", '"6a6b0e1c0a0b4c0d8e0f0123456789ab"'), ("id", "1"), ("id_bytes", '"x"'),
    ("tags", "[true]"), ("tags", "{}"), ("tags", '"a"'), ("days", '{"a": "x"}'), ("days", "[]"),
    ("days", '{"a": null}'),
    ("inner", "{}"), ("inner", '{"at": 0, "cents": "x"}'), ("inner", '{"at": 0, "unit": "GBP"}'), ("inner", "1"),
    ("inner", '{"at": null}'), ("several", "{}"), ("several", "[true]"), ("whole", "null"), ("whole", "1.5"),
    ("unit", '"GBP"'),
    ("id", json.dumps(f"{U}\n")), ("id_bytes", json.dumps(f"{U}\n")), ("cents", json.dumps("1.5\n")),
    ("raw", json.dumps("\\x01\n")), ("day", json.dumps("2026-01-01\n")), ("clock", json.dumps("18:31:38\n")),
    ("at", json.dumps("2026-11-20T18:31:38Z\n")), ("local", json.dumps("2026-03-29T02:30:00\n")),
]  # fmt: skip


BROKEN = [
    '{"small": 1, "small": 2}',
    '{"small": 01}',
    "{'small': 1}",
    "[]",
    "1",
    "{",
    '{"a": NaN}',
    "\ufeff{}",
    "{}\x00",
]


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> dict[tuple[str, str], tuple[str | None, Any]]:
    """Return the problem and value by field name and JSON, all from one query."""
    cases = [*((name, text) for name, text, _ in GOOD), *BAD]
    rows = [(name, text, f'{{"{name}": {text}}}'.encode()) for name, text in cases]
    rows += [("", text, text.encode()) for text in BROKEN]
    frame = spark.createDataFrame(rows, "name string, text string, value binary")
    actual = with_records(frame, json.dumps(SCHEMA), with_schema=False)
    return {
        (row["name"], row["text"]): (row["problem"], row["record"] and simple(row["record"][row["name"]], row["name"]))
        for row in actual.collect()
    }


def simple(value: Any, name: str) -> Any:  # noqa: ANN401 - any value
    """Return a value in the form of the expected values: unions as lists, records as objects."""
    if hasattr(value, "asDict"):
        items = {key: simple(item, name) for key, item in value.asDict().items()}
        return list(items.values()) if "member0" in items else items
    if isinstance(value, dict):
        return {key: simple(item, name) for key, item in value.items()}
    if isinstance(value, list):
        return [simple(item, name) for item in value]
    if isinstance(value, datetime) and name != "local":
        return value.astimezone(UTC)  # Spark returns timestamps in the local zone, without tzinfo
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.parametrize(("name", "text", "expected"), GOOD)
def test_decodes_valid_json(
    results: dict[tuple[str, str], tuple[str | None, Any]], name: str, text: str, expected: object
) -> None:
    problem, value = results[name, text]
    assert (problem, value) == (None, expected)
    assert type(value) is type(expected)


@pytest.mark.parametrize(("name", "text"), BAD)
def test_rejects_invalid_json(results: dict[tuple[str, str], tuple[str | None, Any]], name: str, text: str) -> None:
    assert results[name, text] == (f"invalid:{name}", None)


@pytest.mark.parametrize("text", BROKEN)
def test_rejects_json_that_is_not_an_object(results: dict[tuple[str, str], tuple[str | None, Any]], text: str) -> None:
    assert results["", text] == ("undecodable", None)


def test_columns_have_avro_types(spark: SparkSession) -> None:
    """Otherwise, a table could not change its format, and a target could not compare types before it writes."""
    nothing = spark.createDataFrame([], "value binary")
    actual = with_records(nothing, json.dumps(SCHEMA), with_schema=False).select("record.*")
    avro = spark.range(1).select(from_avro(F.lit(None).cast("binary"), json.dumps(SCHEMA)).alias("record"))
    expected = avro.select("record.*").schema
    assert {f.name: f.dataType.simpleString() for f in actual.schema} == {
        f.name: f.dataType.simpleString() for f in expected
    }
