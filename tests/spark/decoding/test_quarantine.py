"""Unreadable records are quarantined with their bytes and reported, and do not stop the run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.live_topic import LiveTopic
from tests.spark.table_under_test import Target

from outbox_events.errors import RefusedError
from outbox_spark.errors import SchemaError
from outbox_spark.jobs.model import MaterializeOptions, Outcome, RecordFormat
from outbox_spark.runs.materialize_table import materialize

THING = {
    "type": "record",
    "name": "Thing",
    "fields": [
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "id", "type": ["null", {"type": "string", "logicalType": "uuid"}], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}
OTHER = {"type": "record", "name": "Thing", "fields": [{"name": "note", "type": "bytes"}]}
SCHEMAS = Schemas({1: THING, 2: OTHER}, newest=1)


def value(note: str | None = None, **more: Any) -> bytes:  # noqa: ANN401 - Avro values
    return framed(THING, 1, {"note": note, **more})


def test_limit_applies_to_all_batches_of_a_run(postgres_target: Target) -> None:
    log = Log("test.thing", partitions=1)
    for number in range(4):
        log.append("fine", value(), sequence(2 * number))
        log.append("bad", b"?", sequence(2 * number + 1))
    live = LiveTopic(postgres_target.spark, log, SCHEMAS)

    def run(limit: int) -> Outcome:
        job = structs.replace(postgres_target.job, options=MaterializeOptions(max_quarantined=limit))
        return materialize(postgres_target.spark, job, lambda _: None, max_records=2, topic=live.topic())

    with pytest.raises(RefusedError, match=r"4 records of this run .* max_quarantined is 3"):
        run(3)
    assert len(postgres_target.rows("__quarantine")) == 3
    assert run(1).quarantined == 1


def test_quarantines_each_kind_of_poison_with_its_reason(target: Target) -> None:
    log = Log("test.thing")
    log.append("fine", value("ok"), sequence(1))
    log.append("twice", value("old"), sequence(2))
    bad: list[tuple[str | bytes | None, bytes | None, str]] = [
        (None, value("a"), "no-key"),
        (None, value("b"), "no-key"),
        (None, None, "no-key"),
        (b"\xff\xfe", value(), "key-not-utf8"),
        ("text", b"hello", "not-wire-format"),
        ("short", b"\x00\x00\x00", "not-wire-format"),
        ("nothing", b"", "not-wire-format"),
        ("unknown", b"\x00\x00\x00\x00\x63abc", "unknown-schema-id"),
        ("cut", value("cut off")[:-3], "undecodable"),
        ("twice", value("x")[:6], "undecodable"),
        ("uuid", value(id="not-a-uuid"), "invalid:id"),
        ("line", value(id="6a6b0e1c-0a0b-4c0d-8e0f-0123456789ab\n"), "invalid:id"),
    ]
    for number, (key, raw, _) in enumerate(bad):
        log.append(key, raw, sequence(10 + number))
    outcome = target.run(log, SCHEMAS)
    retained = target.rows("__quarantine")
    expected = {(record.partition, record.offset): record for record in log.records[2:]}
    reasons = {(row["_partition"], row["_offset"]): row["reason"] for row in retained}
    assert reasons == {place: bad[list(expected).index(place)][2] for place in expected}
    for row in retained:
        record = expected[row["_partition"], row["_offset"]]
        assert (row["key"], row["value"], row["_sequence"]) == (record.key, record.value, record.sequence)
    # If the newest record of a key is unreadable, the row has the newest readable record.
    assert target.state("note") == {"fine": {"note": "ok"}, "twice": {"note": "old"}}
    assert (outcome.quarantined, outcome.upserts, outcome.records) == (len(bad), 2, len(bad) + 2)


def test_next_valid_record_clears_the_stale_flag(postgres_target: Target) -> None:
    log = Log("test.thing")
    log.append("k", value("first"), sequence(1))
    postgres_target.run(log, SCHEMAS)
    assert postgres_target.state("note", "_stale") == {"k": {"note": "first", "_stale": False}}
    log.append("k", b"broken", sequence(2))
    postgres_target.run(log, SCHEMAS)
    assert postgres_target.state("note", "_stale") == {"k": {"note": "first", "_stale": True}}
    log.append("k", value("third"), sequence(3))
    outcome = postgres_target.run(log, SCHEMAS)
    assert postgres_target.state("note", "_stale") == {"k": {"note": "third", "_stale": False}}
    assert outcome.quarantined == 0
    assert len(postgres_target.rows("__quarantine")) == 1


def test_quarantines_values_that_postgres_cannot_store(postgres_target: Target) -> None:
    log = Log("test.thing")
    log.append("text", value("a\x00b"), sequence(1))
    log.append("json", value(tags=["a\x00b"]), sequence(2))
    log.append("k\x00", value(), sequence(3))
    log.append("k\x00gone", None, sequence(4))
    log.append("backslash", value(tags=["\\u0000"]), sequence(5))
    postgres_target.run(log, SCHEMAS)
    reasons = {row["key"]: row["reason"] for row in postgres_target.rows("__quarantine")}
    assert reasons == {
        b"text": "invalid:note",
        b"json": "invalid:tags",
        b"k\x00": "invalid:aggregate_id",
        b"k\x00gone": "invalid:aggregate_id",
    }
    assert postgres_target.state("tags") == {"backslash": {"tags": ["\\u0000"]}}


def test_rejects_a_registry_without_any_of_the_ids(target: Target) -> None:
    log = Log("test.thing")
    log.append("a", value("x"), sequence(1))
    log.append("b", value("y"), sequence(2))
    with pytest.raises(RefusedError, match=r"(?m)topic test\.thing: .* none of the schema ids .*: 1$"):
        target.run(log, Schemas({5: THING}, newest=5))
    assert target.committed() is None
    assert target.run(log, Schemas({1: THING}, newest=1)).upserts == 2


def test_rejects_a_changed_logical_type(postgres_target: Target) -> None:
    def thing(logical: str) -> dict[str, Any]:
        return {**THING, "fields": [{"name": "at", "type": {"type": "long", "logicalType": logical}}]}

    log = Log("test.thing")
    log.append("a", framed(thing("timestamp-millis"), 1, {"at": datetime.now(UTC)}), sequence(1))
    schemas = Schemas({1: thing("timestamp-millis"), 2: thing("timestamp-micros")}, newest=2)
    with pytest.raises(SchemaError, match=r"field at: schema 1 of .*timestamp-millis"):
        postgres_target.run(log, schemas)


def test_quarantines_a_record_of_another_type(postgres_target: Target) -> None:
    log = Log("test.thing")
    other = {"type": "record", "name": "Somebody", "fields": [{"name": "note", "type": "double"}]}
    log.append("k", framed(other, 3, {"note": 0.5}), sequence(1))
    log.append("fine", value("ok"), sequence(2))
    log.append("text", b"\x00\x00\x00\x00\x04\x02x", sequence(3))
    postgres_target.run(log, Schemas({1: THING, 3: other, 4: "string"}, newest=1))  # type: ignore[dict-item]
    assert [row["reason"] for row in postgres_target.rows("__quarantine")] == ["undecodable"] * 2
    assert postgres_target.state("note") == {"fine": {"note": "ok"}}


def test_rejects_an_older_version_that_the_latest_cannot_read(postgres_target: Target) -> None:
    log = Log("test.thing")
    older = {"type": "record", "name": "Thing", "fields": [{"name": "note", "type": "double"}]}
    log.append("k", framed(older, 3, {"note": 0.5}), sequence(1))
    log.append("fine", value("ok"), sequence(2))
    with pytest.raises(SchemaError, match=r"schema 3 of .*double; .*null or string"):
        postgres_target.run(log, Schemas({1: THING, 3: older}, newest=1))
    assert postgres_target.committed() is None


def test_unreadable_key_makes_no_row_stale(target: Target) -> None:
    """The bytes of an unreadable key may equal the text of another key."""
    target = replace(target, job=structs.replace(target.job, options=MaterializeOptions(key_format=RecordFormat.JSON)))
    log = Log("test.thing")
    log.append(b'"abc"', value("good"), sequence(1))
    log.append(b"abc", value("its key is no JSON"), sequence(2))
    for commit in (3, 4):
        assert target.run(log, SCHEMAS).quarantined == 1
        assert target.state("note", "_stale") == {"abc": {"note": "good", "_stale": False}}
        log.append(b"abc", value("again"), sequence(commit))
    log.append(b'"abc"', b"poison", sequence(5))
    target.run(log, SCHEMAS)
    assert target.state("note", "_stale") == {"abc": {"note": "good", "_stale": True}}
