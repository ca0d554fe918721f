"""Dead letters of rows for which no record can be created."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
from tests.unit.encoding.samples import SEQUENCE, encoder, record_schema, row

from outbox_kit.encoding import InvalidRowError
from outbox_kit.encoding.dead_letter import dead_letter_record
from outbox_kit.encoding.json_values import compact, parse, quote

ERROR = InvalidRowError("payload-invalid", "the payload is wrong")
SCHEMA = record_schema(n="long")


def value_of(columns: dict[str, tuple[str, object]], error: InvalidRowError = ERROR, **changes: object) -> object:
    record = dead_letter_record(encoder(SCHEMA), row(**changes), SEQUENCE, error, columns)
    return json.loads(record.value or b"", parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("jsonb", '{"a": 1}', {"a": 1}),
        ("json", "{broken", "{broken"),
        ("text", '{"a": 1}', '{"a": 1}'),
        ("bytea", b"\xff\0", "/wA="),
        ("double precision", math.nan, "NaN"),
        ("double precision", -math.inf, "-Infinity"),
        ("bigint", 2**63 - 1, 2**63 - 1),
        ("boolean", False, False),
        ("jsonb", None, None),
    ],
)
def test_a_column_is_json(kind: str, value: object, expected: object) -> None:
    assert value_of({"c": (kind, value)}) == {"c": expected, "source_sequence": SEQUENCE}


def test_json_that_is_too_deep_for_consumers_is_text() -> None:
    text = "[" * 300 + "]" * 300
    assert value_of({"c": ("jsonb", text)}) == {"c": text, "source_sequence": SEQUENCE}


def test_headers_keep_valid_members_and_replace_earlier_reasons() -> None:
    dead_letter = dead_letter_record(
        encoder(SCHEMA), row(headers='{"a": "b", "dead_letter_reason": "x"}'), SEQUENCE, ERROR, {}
    )
    assert [text for name, text in dead_letter.headers if name == "dead_letter_reason"] == [b"payload-invalid"]
    assert ("a", b"b") in dead_letter.headers
    broken = dead_letter_record(encoder(SCHEMA), row(headers="{"), SEQUENCE, ERROR, {})
    assert broken.headers[-1] == ("dead_letter_message", b"the payload is wrong")


def test_a_row_without_aggregate_id_has_no_key() -> None:
    assert dead_letter_record(encoder(SCHEMA), row(aggregate_id=None), SEQUENCE, ERROR, {}).key is None
    assert dead_letter_record(encoder(SCHEMA), row(aggregate_id=""), SEQUENCE, ERROR, {}).key == b""


@pytest.mark.parametrize("columns", [{"payload": ("text", "x" * 1_000_000)}, {}])
def test_a_large_row_has_coordinates_and_a_hash(columns: dict[str, tuple[str, object]]) -> None:
    error = ERROR if columns else InvalidRowError("record-too-large", "")
    value = value_of(columns, error, payload="x" * 1_000_000, aggregate_id="😀" * 200)
    assert isinstance(value, dict)
    assert value["payload_sha256"] == hashlib.sha256(b"x" * 1_000_000).hexdigest()
    assert value["payload_bytes"] == 1_000_000
    assert value["aggregate_id"].startswith("sha256:"), "400 characters in UTF-16"


def test_control_characters_have_the_form_of_the_connector() -> None:
    assert quote("\x1f\n\\u001f\\\x0b") == r'"\u001F\n\\u001f\\\u000B"'
    assert compact(parse('{"a": [1.50, null, "\\u001f"], "a": true}')) == r'{"a":[1.50,null,"\u001F"],"a":true}'
