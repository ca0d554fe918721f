"""Records that a target could not store, or whose version is invalid, are quarantined or stored exactly."""

from __future__ import annotations

import hashlib
import struct
from contextlib import ExitStack
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.spark.damaged_rows import sql_name
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import Target

from outbox_spark.jobs.model import PostgresTarget
from outbox_spark.runs.compare_topic import compare_with_topic

THING = {
    "type": "record",
    "name": "Thing",
    "fields": [
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "ratio", "type": "double", "default": 0},
        {
            "name": "price",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}],
            "default": None,
        },
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
    ],
}
RAW = {**THING, "fields": [THING["fields"][0], THING["fields"][1]]} | {  # type: ignore[index]
    "fields": [
        {"name": "note", "type": ["null", "bytes"], "default": None},
        {"name": "ratio", "type": "double", "default": 0},
        {"name": "price", "type": ["null", "bytes"], "default": None},
        {"name": "day", "type": ["null", "int"], "default": None},
        {"name": "at", "type": ["null", "long"], "default": None},
    ]
}
SCHEMAS = Schemas({1: THING}, newest=1)
YEAR_10000 = 253_402_300_800_000
LONG_KEY = "".join(hashlib.sha256(bytes([i])).hexdigest() for i in range(78)) + "12345678"


def value(**fields: Any) -> bytes:  # noqa: ANN401 - Avro values
    """Encode fields without checks of their logical types."""
    return framed(RAW, 1, {"note": None, "ratio": 0, "price": None, "day": None, "at": None} | fields)


def log_of_first_batch() -> tuple[Log, dict[str, str], dict[str, dict[str, Any]]]:
    """Return a log, the quarantine reasons by key that all targets share, and the records that only lakes store."""
    log = Log("test.thing", partitions=1)
    rows: dict[str, dict[str, Any]] = {}
    reasons: dict[str, str] = {}

    def stored(key: str | bytes, **fields: Any) -> None:  # noqa: ANN401
        log.append(key, value(**fields), sequence(len(log.records)))
        rows[key if isinstance(key, str) else key.decode()] = fields

    def bad(key: str, reason: str, **fields: Any) -> None:  # noqa: ANN401
        log.append(key, value(**fields), sequence(len(log.records)))
        reasons[key] = reason

    stored("")
    stored("nan", ratio=float("nan"))
    stored("infinite", ratio=float("-inf"))
    stored("tiny", ratio=5e-324)
    stored("price", price=struct.pack(">h", -9999))
    log.append("header", value(), sequence(90), headers={"note": bytes(1 << 20)})
    rows["header"] = {}
    stored(LONG_KEY)
    stored("x" * 2049)
    stored("y" * 2048)
    stored("nul\x00")
    stored("nul", note=b"a\x00b")
    stored("far day", day=2**31 - 1)
    stored("past day", day=-(2**31))
    stored("far time", at=YEAR_10000)
    bad("surrogate", "invalid:note", note=b"\xed\xa0\x80")
    bad("expensive", "undecodable", price=struct.pack(">i", 10_000))
    bad("overflow", "undecodable", at=2**63 - 1)
    log.append("header id", value(), sequence(91), headers={"__value_schema_id": bytes(1 << 20)})
    reasons["header id"] = "unknown-schema-id"
    for key, millis in (("future", YEAR_10000), ("long past", -62_200_000_000_000), ("overflown", 2**63 // 1000 - 1)):
        log.append(key, value(), sequence(len(log.records)), millis=millis)
        reasons[key] = "invalid:_timestamp"
    log.append("no time", value(), sequence(len(log.records)), millis=-1)
    rows["no time"] = {}
    return log, reasons, rows


NOT_IN_POSTGRES = {
    LONG_KEY: "invalid:aggregate_id",
    "x" * 2049: "invalid:aggregate_id",
    "nul\x00": "invalid:aggregate_id",
    "nul": "invalid:note",
    "far day": "invalid:day",
    "past day": "invalid:day",
    "far time": "invalid:at",
}


def test_no_record_blocks_a_table(target: Target) -> None:
    log, reasons, rows = log_of_first_batch()
    is_postgres = isinstance(target.job.target, PostgresTarget)
    unsupported = NOT_IN_POSTGRES if is_postgres else {}
    for key in unsupported:
        del rows[key]
    target.run(log, SCHEMAS)
    quarantine = target.rows("__quarantine")
    assert {row["key"].decode(): row["reason"] for row in quarantine} == reasons | unsupported
    assert all(1 <= row["_timestamp"].year <= 9999 for row in quarantine)
    for key in ("future", "nan"):
        log.append(key, value(), sequence(500))
    assert target.run(log, SCHEMAS).upserts == 2
    frame = _frame(target)
    found = {row["aggregate_id"]: row for row in frame.collect()}
    assert set(found) == set(rows) | {"future"}
    assert (found["nan"]["ratio"], found["infinite"]["ratio"], found["tiny"]["ratio"]) == (0.0, float("-inf"), 5e-324)
    assert str(found["price"]["price"]) == "-99.99"
    if not is_postgres:
        assert (found["nul"]["note"], found["far day"]["day"], found["past day"]["day"], found["far time"]["at"]) == (
            "a\x00b", 2**31 - 1, -(2**31), YEAR_10000,
        )  # fmt: skip


def _frame(target: Target) -> Any:  # noqa: ANN401
    if isinstance(target.job.target, PostgresTarget):
        return target.spark.createDataFrame(
            [(row["aggregate_id"], row["ratio"], row["price"]) for row in target.rows()],
            "aggregate_id string, ratio double, price decimal(4,2)",
        )
    day, at = F.unix_date("day").alias("day"), F.unix_millis("at").alias("at")
    return target.spark.table(sql_name(target)).select("aggregate_id", "ratio", "price", "note", day, at)


def test_malformed_sequence_affects_no_other_record(spark: SparkSession, target: Target) -> None:
    malformed = ["\x00" * 38, "z" * 38, sequence(99).upper().replace("0", "A"), sequence(99) + "\n", "short", ""]
    log = Log("test.thing", partitions=1)
    for number, key in enumerate("abcdef"):
        log.append(key, value(note=b"1"), sequence(number))
        log.append(key, value(note=b"bad"), malformed[number])
    log.append("a", None, malformed[1])
    outcome = target.run(log, SCHEMAS)
    assert (outcome.quarantined, outcome.records) == (7, 13)
    expected = {key: {"note": "1", "_stale": False} for key in "abcdef"}
    assert target.state("note", "_stale") == expected
    log.append("a", b"unreadable", malformed[0])
    log.append("b", value(note=b"2"), sequence(20))
    log.append("b", value(note=b"bad"), malformed[1])
    log.append("c", None, malformed[1])
    assert target.run(log, SCHEMAS).quarantined == 3
    expected["b"]["note"] = "2"
    assert target.state("note", "_stale") == expected
    quarantine = target.rows("__quarantine")
    assert {(row["reason"], row["_sequence"], row["aggregate_id"]) for row in quarantine} == {
        ("invalid:_sequence", "", None)
    }
    assert {row["_offset"]: row["value"] for row in quarantine} == {
        record.offset: record.value for record in log.records if record.sequence in malformed
    }
    # Compaction removed the state of `c`, but not the record with a malformed sequence.
    log.records = [record for record in log.records if record.key != b"c" or record.value is None]
    with target.open() as table, ExitStack() as stack:
        topic = LiveTopic(spark, log, SCHEMAS).topic()
        comparison = compare_with_topic(target.job, table, topic, SCHEMAS, stack, 9)  # type: ignore[arg-type]
        assert {kind.value: count for kind, count in comparison.counts.items() if count} == {}
