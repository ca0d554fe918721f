"""Records that were written with an older schema, and invalid record bodies."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
from pyspark.sql import SparkSession
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.memory_table import MemoryTable, run
from tests.spark.table_under_test import Target


def thing(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - Avro schema
    return {"type": "record", "name": "Thing", "fields": list(fields), **more}


def field(name: str, avro_type: object, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - Avro schema
    return {"name": name, "type": avro_type, **more}


def decimal(precision: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}


def test_widens_types_by_the_rules_of_avro(spark: SparkSession) -> None:
    wide = ["long", "float", "double", "float", "double", "double", "bytes", "string", decimal(20), ["null", "long"]]
    narrow = ["int", "int", "int", "long", "long", "float", "string", "bytes", decimal(12), "int"]
    values = [-(2**31), 2**24, 2**31 - 1, 2**24, 2**53, 0.5, "é", "é".encode(), Decimal("1.50"), 7]
    writer = thing(*[field(f"f{i}", t) for i, t in enumerate(narrow)])
    reader = thing(*[field(f"f{i}", t) for i, t in enumerate(wide)])
    log = Log("test.thing", partitions=1)
    log.append("k", framed(writer, 1, {f"f{i}": v for i, v in enumerate(values)}), sequence(1))
    table = MemoryTable()
    run(spark, table, log, Schemas({1: writer, 2: reader}, newest=2))
    row = table.rows["k"]
    actual = [row[f"f{i}"] for i in range(len(wide))]
    assert actual == [-(2**31), 2**24, 2**31 - 1, 2**24, 2**53, 0.5, "é".encode(), "é", Decimal("1.50"), 7]
    assert [type(value).__name__ for value in actual[:6]] == ["int", "float", "float", "float", "float", "float"]


def test_quarantines_a_decimal_too_large_for_the_latest_schema(spark: SparkSession) -> None:
    writer, reader = thing(field("d", decimal(12))), thing(field("d", decimal(4)))
    log = Log("test.thing", partitions=1)
    log.append("fits", framed(writer, 1, {"d": Decimal("12.34")}), sequence(1))
    log.append("not", framed(writer, 1, {"d": Decimal("123.45")}), sequence(2))
    table = MemoryTable()
    run(spark, table, log, Schemas({1: writer, 2: reader}, newest=2))
    assert (table.state("d"), table.reasons()) == ({"fits": Decimal("12.34")}, {b"not": "undecodable"})


def test_resolves_removed_restored_and_renamed_fields(spark: SparkSession) -> None:
    first = thing(field("n", "int"), field("note", "string"), field("old", "string"))
    without = thing(field("n", "int"), field("old", "string"), name="Other", namespace="elsewhere")
    again = thing(
        field("n", "int"),
        field("note", "string", default="none"),
        field("new", "string", aliases=["old"]),
    )
    log = Log("test.thing", partitions=1)
    log.append("first", framed(first, 1, {"n": 1, "note": "x", "old": "a"}), sequence(1))
    log.append("without", framed(without, 2, {"n": 2, "old": "b"}), sequence(2))
    log.append("again", framed(again, 3, {"n": 3, "note": "y", "new": "c"}), sequence(3))
    table = MemoryTable()
    run(spark, table, log, Schemas({1: first, 2: without, 3: again}, newest=3))
    assert table.quarantine == []
    expected = {"first": (1, "x", "a"), "without": (2, "none", "b"), "again": (3, "y", "c")}
    assert table.state("n", "note", "new") == expected


def test_unknown_enum_symbol_uses_the_default_or_is_quarantined(spark: SparkSession) -> None:
    def enum(*symbols: str, **more: str) -> dict[str, Any]:
        return {"type": "enum", "name": "E", "symbols": list(symbols), **more}

    writer = thing(field("a", enum("NEW", "OLD")))
    for reader, removed in ((enum("NEW"), None), (enum("NEW", "UNKNOWN", default="UNKNOWN"), "UNKNOWN")):
        log = Log("test.thing", partitions=1)
        log.append("new", framed(writer, 1, {"a": "NEW"}), sequence(1))
        log.append("old", framed(writer, 1, {"a": "OLD"}), sequence(2))
        table = MemoryTable()
        run(spark, table, log, Schemas({1: writer, 2: thing(field("a", reader))}, newest=2))
        assert table.state("a") == ({"new": "NEW"} if removed is None else {"new": "NEW", "old": removed})
        assert table.reasons() == ({b"old": "undecodable"} if removed is None else {})


def test_quarantines_invalid_utf8_and_trailing_bytes(spark: SparkSession) -> None:
    inner = {"type": "record", "name": "In", "fields": [field("s", ["null", "string"])]}
    schema = thing(
        field("s", "string", default=""),
        field("list", {"type": "array", "items": inner}, default=[]),
        field("map", {"type": "map", "values": "string"}, default={}),
        field("any", ["null", "int", "string"], default=None),
        field("raw", "bytes", default=""),
    )

    def body(**values: Any) -> bytes:  # noqa: ANN401 - Avro values
        return framed(schema, 1, {"raw": b"", **values})

    bad = {
        "text": (body(s="a@b"), "invalid:s"),
        "item": (body(list=[{"s": None}, {"s": "a@b"}]), "invalid:list"),
        "map-key": (body(map={"a@b": "c"}), "invalid:map"),
        "map-value": (body(map={"a": "@"}), "invalid:map"),
        "branch": (body(any="@"), "invalid:any"),
    }
    log = Log("test.thing", partitions=1)
    for number, (key, (value, _)) in enumerate(bad.items()):
        assert value.count(b"@") == 1
        log.append(key, value.replace(b"@", b"\xff"), sequence(10 + number))
    log.append("bytes", body(raw=b"\xff"), sequence(1))
    for number, rest in enumerate((b"\x00", b"x" * 8, body())):
        log.append(f"rest-{number}", body() + rest, sequence(30 + number))
        bad[f"rest-{number}"] = (b"", "undecodable")
    for number in range(1, 4):
        log.append(f"cut-{number}", body(s="some text")[:-number], sequence(40 + number))
        bad[f"cut-{number}"] = (b"", "undecodable")
    table = MemoryTable()
    run(spark, table, log, Schemas({1: schema}, newest=1))
    assert set(table.rows) == {"bytes"}
    assert table.reasons() == {key.encode(): reason for key, (_, reason) in bad.items()}


def test_logical_types_are_exact_in_jsonb(postgres_target: Target) -> None:
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    uuid = {"type": "string", "logicalType": "uuid"}
    inner = {
        "type": "record",
        "name": "In",
        "fields": [
            field("at", micros),
            field("price", ["null", decimal(38)]),
            field("id", uuid),
            field("raw", "bytes"),
        ],
    }
    schema = thing(
        field("prices", {"type": "array", "items": decimal(38)}),
        field("days", {"type": "map", "values": {"type": "int", "logicalType": "date"}}),
        field("inner", {"type": "array", "items": inner}),
        field("clock", {"type": "array", "items": {"type": "long", "logicalType": "time-micros"}}),
        field("either", ["null", decimal(12), "string", "In"]),
        field("large", {"type": "array", "items": "long"}),
    )
    price = "123456789012345678901234567890123456.70"
    log = Log("test.thing", partitions=1)
    values = {
        "prices": [Decimal(price), Decimal("-0.10")],
        "days": {"a": 0},
        "inner": [{"at": 1, "price": Decimal("0.00"), "id": "6a6b0e1c-0a0b-4c0d-8e0f-0123456789ab", "raw": b"\xff"}],
        "clock": [1],
        "either": Decimal("1.20"),
        "large": [2**63 - 1],
    }
    log.append("k", framed(schema, 1, values), sequence(1))
    postgres_target.run(log, Schemas({1: schema}, newest=1))
    names = ", ".join(f'"{name}"::text' for name in values)
    assert postgres_target.dsn is not None
    with psycopg.connect(**postgres_target.dsn) as connection:
        query = f"select {names} from {postgres_target.job.target.schema}.thing"  # type: ignore[union-attr]
        (row,) = connection.execute(query.encode()).fetchall()
    # Numbers keep all digits and their scale, times of day become numbers, and bytes become base64.
    assert dict(zip(values, row, strict=True)) == {
        "prices": f"[{price}, -0.10]",
        "days": '{"a": "1970-01-01"}',
        "inner": '[{"at": "1970-01-01T00:00:00.000001Z", "id": "6a6b0e1c-0a0b-4c0d-8e0f-0123456789ab", '
        '"raw": "/w==", "price": 0.00}]',
        "clock": "[1]",
        "either": '{"member0": 1.20, "member1": null, "member2": null}',
        "large": "[9223372036854775807]",
    }
