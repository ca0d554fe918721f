"""Comparison of decoded values with JSON states, by Avro type."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest

from outbox_kit.kafka.latest_records import ValueSample
from outbox_kit.operations.value_comparison import ValueDecoder
from outbox_kit.pipeline import Lock

SCHEMA_ID = 7
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
INSTANT = {"type": "long", "logicalType": "timestamp-millis"}
NESTED = {"type": "record", "name": "Nested", "fields": [{"name": "n", "type": ["null", "int"]}]}
TIME = datetime(2026, 11, 24, 1, 2, 3, 456000, UTC)
UUID_TEXT = "0cf1d0f2-61d7-4a30-9a46-4d0a3fa8e4c5"


def unknown(_: int) -> str | None:
    """Return the answer of a registry that does not have the schema."""
    return None


def different_fields(lock: Lock, avro_type: Any, value: Any, state: str) -> tuple[str, ...]:  # noqa: ANN401
    """Encode a record with one field, `f`, and compare it with a state."""
    schema = {"type": "record", "name": "Thing", "fields": [{"name": "f", "type": avro_type}]}
    entry = lock.schemas["book"][0].model_copy(update={"id": SCHEMA_ID, "text": json.dumps(schema)})
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), {"f": value})
    decoder = ValueDecoder(lock.model_copy(update={"schemas": {"book": [entry]}}), "book", unknown)
    return decoder.different_fields(b"\0" + SCHEMA_ID.to_bytes(4, "big") + body.getvalue(), state)


@pytest.mark.parametrize(
    ("avro_type", "value", "same", "other"),
    [
        ("string", "a", '"a"', '"b"'),
        (["null", "string"], None, "null", '"b"'),
        (["null", "string"], "a", '"a"', "null"),
        ("long", 7, "7.0", "8"),
        ("double", 0.1, "0.1", "0.2"),
        ("float", 0.1, "0.1", "0.2"),
        ("boolean", True, "true", "false"),
        (DECIMAL, Decimal("1.50"), "1.5", '"1.51"'),
        ({"type": "int", "logicalType": "date"}, date(2026, 1, 2), '"2026-01-02"', '"2026-01-03"'),
        (INSTANT, TIME, '"2026-11-24T02:02:03.456789+01:00"', '"2026-11-24T01:02:03.457Z"'),
        ({"type": "string", "logicalType": "uuid"}, UUID(UUID_TEXT), f'"{UUID_TEXT.upper()}"', f'"{UUID_TEXT[:-1]}6"'),
        ({"type": "array", "items": "string"}, ["a"], '["a"]', '["a", "b"]'),
        ({"type": "map", "values": "int"}, {"a": 1}, '{"a": 1}', '{"a": 2}'),
        (NESTED, {"n": 1}, '{"n": 1}', '{"n": 2}'),
    ],
)
def test_difference_of_a_field(lock: Lock, avro_type: Any, value: Any, same: str, other: str) -> None:  # noqa: ANN401
    assert different_fields(lock, avro_type, value, f'{{"f": {same}}}') == ()
    assert different_fields(lock, avro_type, value, f'{{"f": {other}}}') == ("f",)


@pytest.mark.parametrize(
    ("avro_type", "value", "state"),
    [
        ("bytes", b"x", '{"f": "eA=="}'),
        (["string", "int"], 1, '{"f": "1"}'),
        (INSTANT, TIME, '{"f": 1764000000000}'),
        ("string", "a", "{}"),
        ("string", "a", "[]"),
    ],
    ids=["bytes", "union of several types", "another form", "no field", "no record"],
)
def test_what_cannot_be_compared_is_equal(lock: Lock, avro_type: Any, value: Any, state: str) -> None:  # noqa: ANN401
    assert different_fields(lock, avro_type, value, state) == ()


ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "string", "default": "-"}]}
DAY = {"type": "int", "logicalType": "date"}


@pytest.mark.parametrize(
    ("written", "newest", "same", "other"),
    [
        ([], [{"name": "n", "type": ["null", "int"], "default": None}], '{"n": null}', '{"n": 7}'),
        ([], [{"name": "n", "type": "int", "default": 7}], '{"n": 7}', '{"n": 8}'),
        ([], [{"name": "d", "type": DECIMAL, "default": "\u0001,"}], '{"d": "3.00"}', '{"d": "3.01"}'),
        (
            [],
            [{"name": "t", "type": INSTANT, "default": 1000}],
            '{"t": "1970-01-01T00:00:01Z"}',
            '{"t": "1971-01-01T00:00:00Z"}',
        ),
        ([], [{"name": "day", "type": [DAY, "null"], "default": 1}], '{"day": "1970-01-02"}', '{"day": "1970-01-03"}'),
        ([], [{"name": "a", "type": ADDRESS, "default": {}}], '{"a": {"zip": "-"}}', '{"a": {"zip": "1"}}'),
        ([("old", "a")], [{"name": "new", "type": "string", "aliases": ["old"]}], '{"new": "a"}', '{"new": "b"}'),
        ([("k", "a"), ("gone", "b")], [{"name": "k", "type": "string"}], '{"k": "a", "gone": "c"}', '{"k": "b"}'),
        ([("k", "a")], [{"name": "k", "type": "int"}], '{"k": "a"}', '{"k": "b"}'),
    ],
    ids=["nullable", "default", "decimal", "instant", "date", "record", "alias", "removed", "unreadable"],
)
def test_older_record_is_compared_as_the_newest_schema_reads_it(
    lock: Lock, written: list[tuple[str, str]], newest: list[Any], same: str, other: str
) -> None:
    old = {"type": "record", "name": "Thing", "fields": [{"name": name, "type": "string"} for name, _ in written]}
    new = {"type": "record", "name": "Thing", "fields": newest}
    versions = [
        lock.schemas["book"][0].model_copy(update={"id": number, "text": json.dumps(schema)})
        for number, schema in ((8, new), (SCHEMA_ID, old))
    ]
    decoder = ValueDecoder(lock.model_copy(update={"schemas": {"book": versions}}), "book", unknown)
    # The lock file retains three versions, so the oldest one can be only in the registry.
    older = ValueDecoder(
        lock.model_copy(update={"schemas": {"book": versions[:1]}}), "book", {SCHEMA_ID: versions[1].text}.get
    )
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(old), dict(written))
    value = b"\0" + SCHEMA_ID.to_bytes(4, "big") + body.getvalue()
    for each in (decoder, older):
        assert each.different_fields(value, same) == ()
        assert len(each.different_fields(value, other)) == 1


@pytest.mark.parametrize("value", [b"", b"text", b"\0\0\0\0\x63abc", b"\0\0\0\0\x07"])
def test_values_of_other_formats_and_schemas_are_equal(lock: Lock, value: bytes) -> None:
    assert ValueDecoder(lock, "book", unknown).different_fields(value, '{"title": "a"}') == ()
    assert ValueDecoder(None, "book", unknown).different_fields(value, '{"title": "a"}') == ()


def test_record_of_another_type_is_not_compared(lock: Lock) -> None:
    """After the registry was rebuilt, an id can belong to the schema of another type."""
    other = {"type": "record", "name": "Other", "fields": [{"name": "title", "type": "string"}]}
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(other), {"title": "a"})
    value = b"\0" + (99).to_bytes(4, "big") + body.getvalue()
    decoder = ValueDecoder(lock, "book", {99: json.dumps(other)}.get)
    assert decoder.different_fields(value, '{"title": "b"}') == ()


def test_sample_is_limited() -> None:
    by_keys, by_bytes = ValueSample(max_keys=10), ValueSample(max_bytes=100)
    for number in range(100):
        for sample in (by_keys, by_bytes):
            sample.set(f"k{number}", b"0123456789")
            sample.set(f"k{number}", b"012345678x")
    assert 0 < len(by_keys.values) <= 10
    assert 0 < len(by_bytes.values) <= 10
    assert not by_keys.is_complete
    assert set(by_keys.values.values()) == {b"012345678x"}


def test_sample_forgets_tombstones() -> None:
    sample = ValueSample(max_keys=2)
    for key, value in (("a", b"1"), ("a", None), ("b", b"2"), ("c", b"3")):
        sample.set(key, value)
    assert sample.values == {"b": b"2", "c": b"3"}
    assert sample.is_complete
