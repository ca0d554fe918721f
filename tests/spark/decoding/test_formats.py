"""Keys and values in every format that a topic can have, including several formats in one topic."""

from __future__ import annotations

import io
import json
import struct
import uuid
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession
from tests.spark.kafka_log import Log, Schemas, framed, sequence
from tests.spark.memory_table import MemoryTable, run

from outbox_events.errors import RefusedError
from outbox_spark.jobs.model import MaterializeOptions, RecordFormat

THING = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": "string"}]}
OLD = {"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "int"}, {"name": "gone", "type": "int"}]}
NEWER = {**THING, "fields": [THING["fields"][0], {"name": "s", "type": "string", "default": "new"}]}
GUID = "89791762-2336-186f-9674-299b90a8e2ad"


def body(schema: dict[str, Any] | str, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def id_header(schema_id: int) -> dict[str, bytes]:
    return {"__value_schema_id": b"\x00" + struct.pack(">I", schema_id)}


def guid_bytes(guid: str = GUID) -> bytes:
    return b"\x01" + uuid.UUID(guid).bytes


def append(log: Log, key: str | bytes, value: bytes | None, **headers: bytes) -> None:
    names = {"value_id": "__value_schema_id", "key_id": "__key_schema_id"}
    position = len(log.records) + 1
    log.append(key, value, sequence(position), partition=0, headers={names[n]: v for n, v in headers.items()})


def test_decodes_ids_in_prefix_and_headers_in_one_topic(spark: SparkSession) -> None:
    log = Log("test.thing", partitions=1)
    old, new = body(OLD, {"n": 1, "gone": 0}), body(NEWER, {"n": 2, "s": "x"})
    append(log, "prefix", framed(NEWER, 2, {"n": 2, "s": "x"}))
    append(log, "prefix-old", framed(OLD, 1, {"n": 1, "gone": 0}))
    append(log, "header", new, value_id=id_header(2)["__value_schema_id"])
    append(log, "header-old", old, value_id=id_header(1)["__value_schema_id"])
    append(log, "guid", new, value_id=guid_bytes())
    append(log, "guid-prefix", guid_bytes() + new)
    # The header takes precedence, even if the body begins like a frame.
    zero = body(NEWER, {"n": 0, "s": "\x00\x00\x01"})
    append(log, "looks-framed", zero, value_id=id_header(2)["__value_schema_id"])
    append(log, "tombstone", new, value_id=guid_bytes())
    append(log, "tombstone", None, value_id=guid_bytes())
    append(log, "unknown-guid", new, value_id=guid_bytes(str(uuid.UUID(int=1))))
    append(log, "unknown-id", new, value_id=id_header(77)["__value_schema_id"])
    append(log, "short-header", new, value_id=b"\x00\x01")
    append(log, "other-magic", new, value_id=b"\x02" + new)
    table = MemoryTable()
    run(spark, table, log, Schemas({1: OLD, 2: NEWER}, newest=2, by_name={GUID: NEWER}))
    assert table.state("n", "s") == {
        "prefix": (2, "x"),
        "prefix-old": (1, "new"),
        "header": (2, "x"),
        "header-old": (1, "new"),
        "guid": (2, "x"),
        "guid-prefix": (2, "x"),
        "looks-framed": (0, "\x00\x00\x01"),
    }
    assert table.reasons() == {
        b"unknown-guid": "unknown-schema-id",
        b"unknown-id": "unknown-schema-id",
        b"short-header": "not-wire-format",
        b"other-magic": "not-wire-format",
    }


def test_rejects_guid_headers_when_the_registry_has_no_guids(spark: SparkSession) -> None:
    log = Log("test.thing", partitions=1)
    append(log, "a", body(THING, {"n": 1, "s": ""}), value_id=guid_bytes())
    with pytest.raises(RefusedError, match=f"none of the schema ids .*: {GUID}"):
        run(spark, MemoryTable(), log, Schemas({1: THING}, newest=1))


def test_rejects_too_many_unknown_ids(spark: SparkSession) -> None:
    log = Log("test.thing", partitions=1)
    append(log, "good", framed(THING, 1, {"n": 1, "s": ""}))
    for number in range(3):
        append(log, f"bad-{number}", framed(THING, 50 + number, {"n": 1, "s": ""}))
    table = MemoryTable()
    with pytest.raises(RefusedError, match=r"3 records .*unknown-schema-id \(3\)"):
        run(spark, table, log, Schemas({1: THING}, newest=1), MaterializeOptions(max_quarantined=2))
    assert table.progress is None


def test_raw_framed_and_unframed_key_are_one_key(spark: SparkSession) -> None:
    log = Log("test.thing", partitions=1)
    long_key = "k" * 70
    for number, key in enumerate(("a", long_key)):
        value = framed(THING, 1, {"n": number, "s": "raw"})
        append(log, key, value)
        append(log, b"\x00\x00\x00\x00\x07" + body("string", key), value)
        append(log, body("string", key), framed(THING, 1, {"n": number, "s": "bare"}), key_id=guid_bytes())
    # A key that is not an Avro string is unchanged, even with the header.
    append(log, b"plain", framed(THING, 1, {"n": 9, "s": ""}), key_id=guid_bytes())
    table = MemoryTable()
    applied = run(spark, table, log, Schemas({1: THING}, newest=1))
    assert (applied.record_count, applied.key_count) == (7, 3)
    assert table.state("n", "s") == {"a": (0, "bare"), long_key: (1, "bare"), "plain": (9, "")}


JSON_KEYS = [
    (b'"abc"', "abc"),
    (b' "abc" ', "abc"),
    (b'"\\u0061bc"', "abc"),
    (b'""', ""),
    (b"42", "42"),
    (b"7.0", "7"),
    (b"-9223372036854775809", "-9223372036854775809"),
    (b'"6a6b0e1c-0a0b-4c0d-8e0f-0123456789ab"', "6a6b0e1c-0a0b-4c0d-8e0f-0123456789ab"),
]
NO_KEYS = [b"abc", b'"abc', b"1.5", b"1e3", b"true", b"null", b"{}", b'["a"]', b"", b'"\xff"', b'"a" "b"']


@pytest.mark.parametrize("key_format", [RecordFormat.JSON, RecordFormat.JSON_WITH_SCHEMA])
def test_decodes_keys_of_the_json_converter(spark: SparkSession, key_format: RecordFormat) -> None:
    def written(key: bytes) -> bytes:
        return key if key_format is RecordFormat.JSON else b'{"schema":{"type":"string"},"payload":' + key + b"}"

    log = Log("test.thing", partitions=1)
    bad = [written(key) for key in NO_KEYS]
    if key_format is RecordFormat.JSON_WITH_SCHEMA:
        bad += [b'"abc"', b'{"payload":"abc"}', b'{"schema":null}']
    for number, key in enumerate([*(written(key) for key, _ in JSON_KEYS), *bad]):
        append(log, key, framed(THING, 1, {"n": number, "s": ""}))
    log.append(None, framed(THING, 1, {"n": 0, "s": ""}), sequence(99))
    table = MemoryTable()
    run(spark, table, log, Schemas({1: THING}, newest=1), MaterializeOptions(key_format=key_format))
    assert table.state("n") == {text: number for number, (_, text) in enumerate(JSON_KEYS)}
    actual = [
        (row["__outbox_key"] and bytes(row["__outbox_key"]), row["__outbox_reason"], row["aggregate_id"])
        for row in table.quarantine
    ]
    assert sorted(actual, key=str) == sorted(
        [(k, "key-unreadable", None) for k in bad] + [(None, "no-key", None)], key=str
    )


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def envelope(payload: object) -> bytes:
    return as_json({"schema": {"type": "string", "optional": True}, "payload": payload})


@pytest.mark.parametrize("value_format", [RecordFormat.JSON, RecordFormat.JSON_WITH_SCHEMA])
def test_decodes_values_of_the_json_converter(spark: SparkSession, value_format: RecordFormat) -> None:
    written = as_json if value_format is RecordFormat.JSON else envelope
    log = Log("test.thing", partitions=1)
    state = {"n": 1, "s": "x"}
    append(log, "object", written(state))
    append(log, "text", written(json.dumps(state)))
    append(log, "more", written({**state, "unknown": {"a": 1}}))
    append(log, "default", written({"n": 1}))
    for name, removed in (("null", None), ("text-null", "null")):
        append(log, name, written(state))
        append(log, name, written(removed))
    append(log, "tombstone", written(state))
    append(log, "tombstone", None)
    bad = {
        "missing": (written({"s": "x"}), "invalid:n"),
        "wrong": (written({"n": "1"}), "invalid:n"),
        "null-field": (written({"n": 1, "s": None}), "invalid:s"),
        "no-object": (written([1]), "undecodable"),
        "twice-text": (written(json.dumps(json.dumps(state))), "undecodable"),
        "cut": (written(state)[:-1], "undecodable"),
        "more-behind": (written(state) + b" {}", "undecodable"),
        "not-utf8": (written(state).replace(b"x", b"\xff"), "undecodable"),
        "half": (written({"n": 1, "s": "\ud83d"}), "undecodable"),
        "empty": (b"", "undecodable"),
        "avro": (framed(NEWER, 2, state), "undecodable"),
    }
    if value_format is RecordFormat.JSON_WITH_SCHEMA:
        bad["bare"] = (as_json(state), "undecodable")
        bad["no-payload"] = (b'{"schema":{}}', "undecodable")
    for name, (value, _) in bad.items():
        append(log, name, value)
    table = MemoryTable()
    run(spark, table, log, Schemas({1: OLD, 2: NEWER}, newest=2), MaterializeOptions(value_format=value_format))
    valid = {"object": (1, "x"), "text": (1, "x"), "more": (1, "x"), "default": (1, "new")}
    assert table.state("n", "s") == valid
    assert set(table.deleted) == {"null", "text-null", "tombstone"}
    assert table.reasons() == {name.encode(): reason for name, (_, reason) in bad.items()}


def test_decodes_an_expanded_payload_of_the_avro_converter(spark: SparkSession) -> None:
    """Connect writes names of records and nested types that differ from those in the registry's latest schema."""
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    code = {"type": "fixed", "name": "Code", "size": 2}
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "kind", "type": kind}]}
    fields = [{"name": "inner", "type": ["null", inner]}, {"name": "code", "type": code}]
    reader = {
        "type": "record",
        "name": "Thing",
        "namespace": "io.kit",
        "fields": [*fields, {"name": "same", "type": "Kind"}],
    }
    writer = {
        "type": "record",
        "name": "ConnectDefault",
        "namespace": "io.confluent.connect.avro",
        "fields": reader["fields"],
    }
    log = Log("test.thing", partitions=1)
    append(log, "k", framed(writer, 7, {"inner": {"kind": "B"}, "code": b"xy", "same": "A"}))
    table = MemoryTable()
    run(spark, table, log, Schemas({1: reader, 7: writer}, newest=1))
    assert table.quarantine == []
    row = table.rows["k"]
    assert (row["inner"]["kind"], bytes(row["code"]), row["same"]) == ("B", b"xy", "A")


def test_pinned_version_sets_the_columns(spark: SparkSession) -> None:
    log = Log("test.thing", partitions=1)
    append(log, "old", framed(OLD, 1, {"n": 1, "gone": 5}))
    older = {**OLD, "fields": [OLD["fields"][0], {"name": "gone", "type": "int", "default": -1}]}
    append(log, "new", framed(NEWER, 2, {"n": 2, "s": "x"}))
    table = MemoryTable()
    run(spark, table, log, Schemas({1: older, 2: NEWER}, newest=2), MaterializeOptions(schema_version=1))
    assert table.state("n", "gone") == {"old": (1, 5), "new": (2, -1)}
