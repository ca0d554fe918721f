"""Records of valid rows, and the reasons why rows are invalid."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from decimal import InvalidOperation
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.encoding.samples import SEQUENCE, encoder, record_schema, row

from outbox_events.errors import ConfigurationError
from outbox_kit.encoding import InvalidRowError, RecordEncoder
from outbox_kit.encoding.avro.numbers import LongNode
from outbox_kit.encoding.dead_letter import dead_letter_record

SCHEMA = record_schema(n="long", x="double", s="string", items={"type": "array", "items": "long"})
NEXT = record_schema(n="long", t="string")
LONGS = st.integers(-(2**63), 2**63 - 1)
STATES = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | LONGS,
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | st.text(),
        "items": st.none() | st.lists(LONGS),
    },
)

EVERY: dict[str, Any] = {
    **{kind: {"type": kind} for kind in ("boolean", "int", "long", "float", "double", "string", "bytes")},
    "fixed": {"type": "fixed", "name": "Four", "size": 4},
    "enum": {"type": "enum", "name": "Colour", "symbols": ["RED"]},
    "array": {"type": "array", "items": "long"},
    "map": {"type": "map", "values": "double"},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    **{
        kind: {"type": base, "logicalType": kind}
        for base, kinds in {
            "bytes": ["big-decimal"],
            "string": ["uuid"],
            "int": ["date", "time-millis"],
            "long": [
                "time-micros",
                "timestamp-millis",
                "timestamp-micros",
                "timestamp-nanos",
                "local-timestamp-micros",
            ],
        }.items()
        for kind in kinds
    },
}
HUGE = "99999999999999999999"
HOSTILE = [
    *(
        f"{number}e{sign}{exponent}"
        for number in ("1", "-0", "0.0", "9.5")
        for sign in ("", "-")
        for exponent in ("400", "2147483647", "2147483648", HUGE)
    ),
    *(f'"{text}"' for text in (f"1e{HUGE}", f"1e-{HUGE}", "NaN", "sNaN", "Infinity", "٣", "1_0", "\\ud800", "\\u0000")),
    *(f'"{text}"' for text in ("999999-12-31", "2026-02-30T25:61:61Z", "2026-11-20T18:31:38+99:99", "24:00:00")),
    "9" * 1000,
    "9" * 5000,
    f'"{"9" * 5000}"',
    "-",
    "NaN",
    "[" * 5000,
    '{"a":' * 300 + "1" + "}" * 300,
    "[1, 1e99999999999999999999]",
    '{"\\ud800": 1}',
    '{"k": 1e99999999999999999999}',
]


def reason_of(encode: Any, **changes: Any) -> str:  # noqa: ANN401 - any encoder and column
    with pytest.raises(InvalidRowError) as error:
        encode.encode(row(**changes), SEQUENCE)
    return error.value.reason


@given(STATES)
def test_avro_readers_read_the_state(state: dict[str, Any]) -> None:
    record = encoder(SCHEMA).encode(row(json.dumps(state)), SEQUENCE)
    assert record.value is not None
    schema = fastavro.parse_schema(json.loads(SCHEMA))
    decoded = fastavro.schemaless_reader(io.BytesIO(record.value[5:]), schema, None)
    assert decoded == dict.fromkeys(("n", "x", "s", "items")) | state


def test_sets_key_headers_and_schema_id() -> None:
    record = encoder(SCHEMA).encode(row(headers='{"a": "b", "n": 1.50}'), SEQUENCE)
    assert (record.topic, record.key, record.partition) == ("p.state", b"k1", None)
    assert record.value == b"\0\0\0\0\x65" + b"\0" * 4
    assert dict(record.headers)["source_sequence"] == SEQUENCE.encode()
    assert record.headers[-2:] == (("a", b"b"), ("n", b"1.50"))


@pytest.mark.parametrize("payload", [None, "null", " null\n"])
def test_null_is_a_tombstone(payload: str | None) -> None:
    assert encoder(SCHEMA).encode(row(payload), SEQUENCE).value is None


def test_event_types_of_tombstones_need_no_valid_payload() -> None:
    subject = encoder(SCHEMA, tombstone_event_types=["Gone"])
    assert subject.encode(row("{broken", event_type="Gone"), SEQUENCE).value is None


def test_uses_the_newest_version_that_accepts_the_payload() -> None:
    subject = encoder(SCHEMA, NEXT)
    ids = [subject.encode(row(text), SEQUENCE).value[1:5] for text in ('{"n": 1}', '{"t": "x"}', '{"s": "x"}')]  # type: ignore[index]
    assert [int.from_bytes(number, "big") for number in ids] == [102, 102, 101]


def test_ignored_fields_select_the_version_that_omits_the_fewest() -> None:
    subject = encoder(SCHEMA, NEXT, unknown_fields="ignore")
    value = subject.encode(row('{"s": "x", "other": 1}'), SEQUENCE).value
    assert value is not None
    assert value[4] == 101


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aggregate_type": "other"}, "unknown-aggregate-type"),
        ({"aggregate_type": None}, "unknown-aggregate-type"),
        ({"aggregate_id": ""}, "empty-key"),
        ({"aggregate_id": None}, "empty-key"),
        ({"id": None}, "empty-event-id"),
        ({"event_type": ""}, "empty-event-type"),
        ({"event_time": None}, "event-time-invalid"),
        ({"headers": "[]"}, "headers-invalid"),
        ({"headers": ""}, "headers-invalid"),
        ({"headers": '{"event_id": "1"}'}, "headers-invalid"),
        ({"headers": '{"a": NaN}'}, "headers-invalid"),
        ({"headers": '{"a": "\\ud800"}'}, "headers-invalid"),
        ({"payload": '{"n": "1"}'}, "payload-invalid"),
        ({"payload": '{"unknown": 1}'}, "payload-invalid"),
        ({"payload": '{"s": "' + "x" * 1_000_000 + '"}'}, "record-too-large"),
    ],
    ids=str,
)
def test_an_invalid_row_has_a_reason(changes: dict[str, Any], reason: str) -> None:
    assert reason_of(encoder(SCHEMA), **changes) == reason


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "1e99999999999", "-1e99999999999", "9" * 1001, "9223372036854775808", "1.5", "01"]
)
def test_a_number_that_no_long_can_have_is_invalid(number: str) -> None:
    assert reason_of(encoder(SCHEMA), payload=f'{{"n": {number}}}') == "payload-invalid"


@pytest.mark.parametrize("number", ["0e400", "-0.0E+2147483647", "10e-1", "1.00"])
def test_a_number_without_fraction_is_a_long(number: str) -> None:
    assert encoder(SCHEMA).encode(row(f'{{"n": {number}}}'), SEQUENCE).value is not None


@pytest.mark.parametrize("kind", ["int", "double", {"type": "bytes", "logicalType": "decimal", "precision": 4}])
def test_a_number_with_an_exponent_over_32_bits_is_no_branch_of_a_union(kind: object) -> None:
    schema = json.dumps(
        {"type": "record", "name": "State", "fields": [{"name": "u", "type": ["null", "long", "string", kind]}]}
    )
    assert reason_of(encoder(schema), payload='{"u": 1e-2147483648}') == "payload-invalid"


@pytest.mark.parametrize("depth", [200, 5_000, 200_000])
def test_deep_nesting_is_invalid(depth: int) -> None:
    schema = record_schema(child="State")
    assert reason_of(encoder(schema), payload='{"child": ' * depth + "{}" + "}" * depth) == "payload-invalid"


def test_the_deepest_valid_state_is_encoded() -> None:
    schema = record_schema(child="State", other={"type": "array", "items": ["null", "State"]})
    text = '{"child": {"other": [' * 66 + "{}" + "]}}" * 66
    assert encoder(schema).encode(row(text), SEQUENCE).value is not None


def test_unions_within_unions_end_at_the_limit_of_work() -> None:
    branches = [
        {
            "type": "record",
            "name": name,
            "fields": [{"name": "next", "type": ["null", "A", "B"], "default": None}, extra],
        }
        for name, extra in (("A", {"name": "a", "type": "int"}), ("B", {"name": "b", "type": "int"}))
    ]
    branches[0]["fields"][0]["type"] = ["null", "A", branches[1]]  # type: ignore[index]
    schema = json.dumps(
        {"type": "record", "name": "State", "fields": [{"name": "root", "type": ["null", branches[0]]}]}
    )
    payload = '{"root": ' + '{"next": ' * 60 + "null" + "}" * 60 + "}"
    assert reason_of(encoder(schema), payload=payload) == "payload-invalid"


@given(st.text() | st.from_regex(r'[\[\]{}:,"0-9eE+.\\ unlatrsf-]*', fullmatch=True))
def test_any_payload_is_a_record_or_invalid(text: str) -> None:
    """Any other exception would end the relay, which would read the row again after its restart."""
    with suppress(InvalidRowError):
        encoder(SCHEMA).encode(row(text), SEQUENCE)
    with suppress(InvalidRowError):
        encoder(SCHEMA).encode(row(headers=text), SEQUENCE)


@pytest.mark.parametrize("kind", EVERY)
def test_no_hostile_value_of_any_type_ends_the_relay(kind: str) -> None:
    reference = EVERY[kind]["name"] if "name" in EVERY[kind] else EVERY[kind]
    subject = encoder(record_schema(v=EVERY[kind], u=["null", reference, "boolean"]))
    unchecked = [
        text for text in HOSTILE for name in ("v", "u") if "cannot be encoded" in problem_of(subject, name, text)
    ]
    assert unchecked == []


def problem_of(subject: RecordEncoder, name: str, text: str) -> str:
    """Return the message of the dead letter that a field with this value causes; empty for a valid value."""
    columns = row(f'{{"{name}": {text}}}', headers=f'{{"h": {text}}}')
    try:
        subject.encode(columns, SEQUENCE)
    except InvalidRowError as error:
        dead_letter_record(subject, columns, SEQUENCE, error, {"payload": ("jsonb", columns.payload)})
        return error.message
    return ""


@pytest.mark.parametrize("error", [InvalidOperation, OverflowError, RecursionError, UnicodeError])
def test_a_value_without_a_check_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def fail(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(LongNode, "write", fail)
    assert reason_of(encoder(SCHEMA), payload='{"n": 1}') == "payload-invalid"


@given(st.binary())
def test_any_avro_body_is_a_record_or_invalid(body: bytes) -> None:
    subject = encoder(SCHEMA, payload="avro", source={"schema_version_column": "v"})
    with suppress(InvalidRowError):
        assert subject.encode(row(body), SEQUENCE).value == b"\0\0\0\0\x65" + body


@pytest.mark.parametrize(("payload", "kind"), [(b"{}", "json"), ("{}", "avro"), ("{}", "confluent-avro")])
def test_a_payload_of_the_wrong_column_type_is_never_a_tombstone(payload: str | bytes, kind: str) -> None:
    subject = encoder(SCHEMA, payload=kind, source={"schema_version_column": "v"})
    with pytest.raises(TypeError):
        subject.encode(row(payload), SEQUENCE)


def test_a_missing_schema_is_an_error_before_the_first_row() -> None:
    with pytest.raises(ConfigurationError):
        encoder(schema="state.avsc")


def test_messages_have_no_values() -> None:
    with pytest.raises(InvalidRowError) as error:
        encoder(SCHEMA).encode(row('{"n": "secret", "s": "secret"}'), SEQUENCE)
    assert "secret" not in error.value.message
