"""Every Avro type is stored exactly in each target, and columns of a newer schema are added."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.table_under_test import Target

from outbox_spark.commands.export import ExportFormat, export
from outbox_spark.decoding.columns import ColumnType, columns_of
from outbox_spark.errors import SchemaError
from outbox_spark.jobs.model import PostgresTarget

FIELDS: list[tuple[str, Any, Any]] = [
    ("plain", "string", "tab\t newline\n quote' backslash\\ \U0001f4da"),
    ("empty", "string", ""),
    ("small", "int", -(2**31)),
    ("large", "long", 2**63 - 1),
    ("single", "float", 0.5),
    ("double", "double", 0.1),
    ("flag", "boolean", False),
    ("raw", "bytes", b"\x00\xff\\"),
    ("id", {"type": "string", "logicalType": "uuid"}, "6a6b0e1c-0a0b-4c0d-8e0f-0123456789ab"),
    (
        "price",
        {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        Decimal("-1234567890.01"),
    ),
    ("big", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}, Decimal("9" * 38)),
    ("day", {"type": "int", "logicalType": "date"}, date(1492, 10, 12)),
    ("clock", {"type": "long", "logicalType": "time-micros"}, time(23, 59, 59, 999999)),
    ("short_clock", {"type": "int", "logicalType": "time-millis"}, time(0, 0, 1, 5000)),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}, datetime(2026, 3, 29, 1, 30, 0, 123456, UTC)),
    (
        "at_millis",
        {"type": "long", "logicalType": "timestamp-millis"},
        datetime(1899, 12, 31, 23, 0, 0, 1000, UTC),
    ),
    ("local", {"type": "long", "logicalType": "local-timestamp-micros"}, datetime(2026, 3, 29, 2, 30, 0, 1)),
    ("state", {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}, "OLD"),
    ("tags", {"type": "array", "items": "string"}, ["a", "", 'q"\\']),
    ("counts", {"type": "map", "values": "long"}, {"x": 2**53 + 1}),
    (
        "place",
        {
            "type": "record",
            "name": "Place",
            "fields": [{"name": "street", "type": "string"}, {"name": "floor", "type": ["null", "int"]}],
        },
        {"street": "High", "floor": None},
    ),
    ("maybe", ["null", "string"], None),
]
SCHEMA = {"type": "record", "name": "Thing", "fields": [{"name": n, "type": t} for n, t, _ in FIELDS]}
VALUES = {name: value for name, _, value in FIELDS}


def one_row(target: Target, schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    log = Log("test.thing")
    log.append("k", framed(schema, 1, value), sequence(1))
    target.run(log, Schemas({1: schema}, newest=1))
    (row,) = target.rows()
    return row


def test_stores_every_type_exactly_in_postgres(postgres_target: Target) -> None:
    row = one_row(postgres_target, SCHEMA, VALUES)
    expected = {**VALUES, "id": uuid.UUID(VALUES["id"])}
    assert {name: row[name] for name in VALUES} == expected
    assert row["aggregate_id"] == "k"


def test_stores_every_type_exactly_in_delta(delta_target: Target) -> None:
    row = one_row(delta_target, SCHEMA, VALUES)
    # Spark returns timestamps in the local time zone without tzinfo, and Delta has no type for a time of day.
    row = {n: v.astimezone(UTC) if isinstance(v, datetime) and n.startswith("at") else v for n, v in row.items()}
    expected = {**VALUES, "clock": "23:59:59.999999", "short_clock": "00:00:01.005000"}
    assert {name: row[name] for name in VALUES} == expected


def test_export_keeps_microseconds(delta_target: Target, spark: SparkSession, tmp_path: Path) -> None:
    one_row(delta_target, SCHEMA, VALUES)
    export(spark, delta_target.job, tmp_path / "export")
    (file,) = (tmp_path / "export/target/thing").glob("*.json")
    row = json.loads(file.read_text())
    assert (row["at"], row["local"]) == ("2026-03-29T01:30:00.123456Z", "2026-03-29T02:30:00.000001")
    assert row["maybe"] is None


def test_exports_every_type_exactly_to_parquet(delta_target: Target, spark: SparkSession, tmp_path: Path) -> None:
    expected = one_row(delta_target, SCHEMA, VALUES)
    export(spark, delta_target.job, tmp_path, ExportFormat.PARQUET)
    (row,) = spark.read.parquet(str(tmp_path / "target/thing")).collect()
    assert row.asDict(recursive=True) == expected


def test_postgres_types(postgres_target: Target) -> None:
    one_row(postgres_target, SCHEMA, VALUES)
    assert postgres_target.dsn is not None
    assert isinstance(postgres_target.job.target, PostgresTarget)
    with psycopg.connect(**postgres_target.dsn) as connection:
        rows = connection.execute(
            "select attname, format_type(atttypid, atttypmod) from pg_attribute "
            "where attrelid = %s::regclass and attnum > 0",
            (f"{postgres_target.job.target.schema}.thing",),
        ).fetchall()
    types = dict(rows)
    assert types["price"] == "numeric(12,2)"
    assert types["id"] == "uuid"
    assert types["at"] == "timestamp with time zone"
    assert types["local"] == "timestamp without time zone"
    assert (types["tags"], types["counts"], types["place"]) == ("jsonb", "jsonb", "jsonb")
    assert (types["aggregate_id"], types["_sequence"], types["_offset"]) == ("text", "text", "bigint")


OLD = {
    "type": "record",
    "name": "Thing",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "dropped", "type": ["null", "string"], "default": None},
    ],
}
NEW = {
    "type": "record",
    "name": "Thing",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["it's", "n\\ew"]},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "default": "\u0001",
        },
    ],
}


def test_adds_columns_of_a_newer_schema_with_their_default(target: Target) -> None:
    log = Log("test.thing")
    for number, key in enumerate(("untouched", "changed", "replayed")):
        log.append(key, framed(OLD, 1, {"n": number, "dropped": "x"}), sequence(10 + number))
    target.run(log, Schemas({1: OLD}, newest=1))
    log.append("changed", framed(NEW, 2, {"n": 5, "note": "", "tags": [], "price": Decimal(2)}), sequence(20))
    log.append("replayed", framed(OLD, 1, {"n": 9, "dropped": "y"}), sequence(3))
    target.run(log, Schemas({1: OLD, 2: NEW}, newest=2))
    default = {"note": None, "tags": ["it's", "n\\ew"], "price": Decimal("0.01"), "dropped": "x"}
    assert target.state("n", "note", "tags", "price", "dropped") == {
        "untouched": {"n": 0, **default},
        "replayed": {"n": 2, **default},
        # Rows written with the latest schema have NULL in columns that it lacks.
        "changed": {"n": 5, "note": "", "tags": [], "price": Decimal("2.00"), "dropped": None},
    }


def test_rejects_a_changed_type_before_any_write(target: Target) -> None:
    log = Log("test.thing")
    log.append("k", framed(OLD, 1, {"n": 1, "dropped": None}), sequence(1))
    target.run(log, Schemas({1: OLD}, newest=1))
    before = (target.rows(), target.committed())
    other = {**OLD, "fields": [{"name": "n", "type": "bytes"}]}
    log.append("k", framed(other, 2, {"n": b""}), sequence(2))
    with pytest.raises(SchemaError, match=r"column .*n.* int.*; .* (bytea|binary)"):
        target.run(log, Schemas({1: OLD, 2: other}, newest=2))
    assert (target.rows(), target.committed()) == before


def nested(name: str, *fields: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": "int"} for field in fields]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([{"name": "Aggregate_Id", "type": "string"}], "field Aggregate_Id cannot have this name"),
        ([{"name": "_offset", "type": "long"}], "field _offset cannot have this name"),
        ([{"name": "__Outbox_x", "type": "long"}], "field __Outbox_x cannot have this name"),
        ([{"name": "a", "type": "int"}, {"name": "A", "type": "int"}], "field a differs .* only in case"),
        (
            [{"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 39}}],
            "field d cannot be a column: it is a decimal of precision 39; the maximum is 38",
        ),
        ([{"name": "n", "type": ["null", "R"]}], "field n cannot be a column: the record R is recursive"),
        (
            [{"name": "n", "type": {"type": "map", "values": nested("Tag", "at", "At")}}],
            "field n cannot be a column: the field at of its record Tag differs from another field only in case",
        ),
    ],
)
def test_rejects_schemas_that_cannot_be_a_table(fields: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        columns_of(json.dumps({"type": "record", "name": "R", "fields": fields}), "t-value")


def test_rejects_a_schema_that_is_not_a_record() -> None:
    with pytest.raises(SchemaError, match="t-value is not a record"):
        columns_of('"string"', "t-value")


@pytest.mark.parametrize(
    ("avro", "kind"),
    [
        (["null", "int", "long"], ColumnType.BIGINT),
        (["float", "double", "null"], ColumnType.DOUBLE),
        (["null", "string", "int"], ColumnType.JSON),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, ColumnType.UUID),
        ({"type": "long", "logicalType": "timestamp-nanos"}, ColumnType.BIGINT),
        ({"type": "fixed", "name": "F", "size": 3}, ColumnType.BYTES),
        ({"type": "string", "logicalType": "decimal", "precision": 50}, ColumnType.TEXT),
        ("Known", ColumnType.TEXT),
        ("other.Named", ColumnType.TEXT),
    ],
)
def test_maps_avro_types_to_column_types(avro: object, kind: ColumnType) -> None:
    known = {"type": "enum", "name": "Known", "symbols": ["A"]}
    named = {"type": "enum", "name": "Named", "namespace": "other", "symbols": ["A"]}
    fields = [
        {"name": "k", "type": known},
        {"name": "n", "type": ["null", named]},
        {"name": "f", "type": avro},
    ]
    schema = {"type": "record", "name": "R", "namespace": "ns", "fields": fields}
    assert columns_of(json.dumps(schema), "t-value")[2].kind is kind


def test_rejects_a_name_too_long_for_postgres(postgres_target: Target) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x" * 64, "type": "int"}]}
    with pytest.raises(SchemaError, match="longer than 63 bytes"):
        postgres_target.run(Log("test.thing"), Schemas({1: schema}, newest=1))


def test_ledger_table_has_no_payload(postgres_target: Target) -> None:
    log = Log("test.thing")
    log.append("k", None, sequence(1))
    postgres_target.run(log, Schemas({1: OLD}, newest=1))
    (entry,) = postgres_target.rows("__tombstones")
    assert set(entry) == {
        "aggregate_id", "_sequence", "_partition_epoch", "_partition", "_offset", "_timestamp",
    }  # fmt: skip
