"""Outbox rows for the comparison of relay and connector, with various formats, types, headers, and invalid rows."""

from __future__ import annotations

from typing import NamedTuple

from outbox_events.contract.wire_format import PREFIX

NOW = "2026-11-20 18:31:38.123456+00"
KEY = "0190f2c4-8f6d-7c3a-a1f0-3f8d4f3b2a11"


class Row(NamedTuple):
    """One row. `extra` are additional columns."""

    kind: str
    payload: str | bytes | None
    key: str | None = KEY
    event_type: str = "Changed"
    headers: str | None = None
    created_at: str | None = NOW
    extra: dict[str, str | None] = {}  # noqa: RUF012 - never changed


def _nullable(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": ["null", kind], "default": None}


def _logical(kind: str, logical_type: str, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": logical_type, **more}


TYPES: dict[str, object] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "fixed": {"type": "fixed", "name": "Four", "size": 4},
    "enum": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"], "default": "RED"},
    "uuid": _logical("string", "uuid"),
    "decimal": _logical("bytes", "decimal", precision=12, scale=2),
    "fixed_decimal": _logical("fixed", "decimal", name="Money", size=8, precision=18, scale=4),
    "date": _logical("int", "date"),
    "time_millis": _logical("int", "time-millis"),
    "time_micros": _logical("long", "time-micros"),
    "timestamp_millis": _logical("long", "timestamp-millis"),
    "timestamp_micros": _logical("long", "timestamp-micros"),
    "local_millis": _logical("long", "local-timestamp-millis"),
    "local_micros": _logical("long", "local-timestamp-micros"),
    "array": {"type": "array", "items": ["null", "long"]},
    "map": {"type": "map", "values": ["null", "double"]},
    "nested": {
        "type": "record",
        "name": "Inner",
        "fields": [
            {"name": "a", "type": "int", "default": -7},
            {"name": "b", "type": {"type": "array", "items": "string"}, "default": ["x", "é"]},
            {"name": "c", "type": {"type": "map", "values": "bytes"}, "default": {"k": "ÿ"}},
            {"name": "d", "type": "double", "default": 1.5},
            {"name": "e", "type": ["string", "null"], "default": "z"},
        ],
    },
    "child": "Every",
}
EVERY = {
    "type": "record",
    "name": "Every",
    "namespace": "io.outboxkit.every",
    "fields": [
        *(_nullable(name, kind) for name, kind in TYPES.items()),
        {"name": "union", "type": ["null", "boolean", "long", "double", "string", "Inner", "Every"], "default": None},
    ],
}
VALUES: dict[str, list[str]] = {
    "boolean": ["true", "false", "1", '"true"'],
    "int": ["0", "-1", "2147483647", "2147483648", "-2147483648", "1.0", "1e3", "1.5", "-0", "-0.0e30", "1e999"],
    "long": ["9223372036854775807", "9223372036854775808", "-9223372036854775808", "9.0", "1e18", "1e19", "1" * 400],
    "float": [
        "0.1",
        "16777217",
        "1e38",
        "1e39",
        "-0",
        "-0.0",
        "1.17549429e-38",
        "1e-46",
        "0.50000002980232238769531251",
    ],
    "double": ["0.1", "1e308", "1e309", "-0", "-0.0", "123456789012345678901234567890", "5e-324", "true"],
    "string": ['"é😀\\u001f\\""', '""', '"\\ud83d\\ude00"', "5", "[]"],
    "bytes": ['"\\\\x00ff"', '"AP8="', '"AP8"', '"A"', '"\\\\xf"', '"a b"', '""'],
    "fixed": ['"\\\\x01020304"', '"AQIDBA=="', '"AQID"'],
    "enum": ['"RED"', '"BLUE"', "1"],
    "uuid": [f'"{KEY}"', f'"{KEY.upper()}"', '"0190f2c48f6d7c3aa1f03f8d4f3b2a11"', '"x"'],
    "decimal": ["9999999999.99", '"-0.01"', "1e3", '"1E-2"', "0.001", "10000000000", '" 1"', '"NaN"', "0.10", "-0"],
    "fixed_decimal": ["-1", "99999999999999.9999", "100000000000000"],
    "date": ['"1980-01-01"', '"1980-02-30"', '"0000-01-01"', '"12026-11-20"', "-1", "2147483648", '"infinity"'],
    "time_millis": ['"18:31:38.123"', '"18:31:38.1234"', '"24:00:00"', "86399999", "86400000", '"23:59:59"'],
    "time_micros": ['"18:31:38.123456"', '"00:00:60"', "-1"],
    "timestamp_millis": ['"2026-11-20T18:31:38.123+00:00"', '"2026-11-20T18:31:38.1234Z"', "-1"],
    "timestamp_micros": [
        '"2026-11-20 18:31:38.123456+05:30"',
        '"0001-01-01T00:00:00-18:00"',
        '"999999-12-31T23:59:59Z"',
        '"2026-11-20T18:31:38"',
        '"2026-11-20T18:31:38+19:00"',
    ],
    "local_millis": ['"2026-11-20T18:31:38.123"', '"2026-11-20T18:31:38Z"'],
    "local_micros": ['"1969-12-31T23:59:59.999999"'],
    "array": ["[]", "[1, null, -1]", '[1, "x"]', "{}"],
    "map": ["{}", '{"é": 1, "b": null}', '{"a": 1, "a": 2}', '{"secret": "x"}', "[]"],
    "nested": ["{}", '{"a": 1, "e": null}', '{"z": 1}', '{"a": 1, "a": 2}', '{"b": [1]}'],
    "child": ['{"child": {"int": 1}}', '{"child": {"child": {"int": "x"}}}'],
    "union": ["true", "5", "1e400", "0.5", '"x"', '{"a": 1}', '{"int": 1}', '{"nothing": 1}', "[]", "null"],
}
TIMES = ("time_millis", "time_micros", "timestamp_millis", "local_micros")
NUMBERS = ("int", "long", "float", "double", "decimal", "date", "union")
HEADERS = [
    '{"traceparent": "00-1-2-01", "n": 1.50, "o": {"b": [1e3, null, "é\\u001f\\u2028\\\\u001f"]}, "t": true}',
    '{"z": null}',
    "null",
    '["x"]',
    '{"event_id": "1"}',
    '{"ce_id": "1"}',
    '{"x-tenant": "1"}',
    '{"": "1"}',
    '{"deep": ' + "[" * 199 + "]" * 199 + "}",
    '{"deep": ' + "[" * 300 + "]" * 300 + "}",
]


def json_rows() -> list[Row]:
    """Return rows for a jsonb or text column."""
    values = [Row("every", f'{{"{name}": {text}}}') for name, texts in VALUES.items() for text in texts]
    deep = '{"child": ' * 199 + "{}" + "}" * 199
    payloads = [
        None,
        "null",
        "{}",
        "[]",
        "5",
        '{"ключ": 1}',
        deep,
        '{"child": ' + deep + "}",
        '{"string": "' + "é" * 9 + '"}',
    ]
    values += [Row("every", text) for text in payloads]
    values += [Row("every", "{}", headers=text) for text in HEADERS]
    values += [
        Row("loan", '{"id": "x"}', extra={"schema_version": "1", "tenant": "Bücherei “Nord”"}),
        Row("loan", '{"id": "x"}', extra={"schema_version": "2"}),
        Row("loan", '{"id": "x"}', extra={"schema_version": "9"}),
        Row("loan", '{"id": "x", "shelf": "s"}'),
        Row("loan", '{"id": "x", "branch": "b"}'),
        Row("loan", '{"id": "x", "shelf": "s"}', extra={"schema_version": "2"}),
        Row("loose", '{"a": 1, "more": 2, "😀": [3]}', extra={"place": "p1"}),
        Row("loose", '{"d": "x", "more": 2}', extra={"place": "p2"}),
        Row("loose", "{}", extra={"place": ""}),
        Row("loose", "{}"),
        Row("loose", '{"broken": 1}', event_type="Gone", extra={"place": "ключ", "schema_version": "9"}),
        Row("loose", None, extra={"place": "p1"}),
        Row("magazine", "{}"),
        Row("😀", "{}"),
        Row("every", "{}", event_type=""),
        Row("every", "{}", key=None),
        Row("every", "{}", key=""),
        Row("every", "{}", key="ключ-2"),
        Row("every", "{}", key="k" * 300),
        Row("every", "{}", created_at="infinity"),
        Row("every", "{}", created_at="0031-02-03 04:05:06.123456+05:30"),
        Row("every", "{}", created_at="9999-12-31 23:59:59.999999+00"),
        Row("every", "{}", created_at="10000-01-01 00:00:00+00"),
        Row("every", '{"string": "' + "x" * 1_000_000 + '"}'),
        Row("every", '{"int": "' + "x" * 990_000 + '"}', key="😀" * 200),
        Row("every", '{"string": "' + "x" * 999_000 + '"}', key="k" * 900),
    ]
    return values


def text_rows() -> list[Row]:
    """Return rows that only a text column can contain."""
    texts = ["plain — “text”", "{broken", '{"a": 1.50, "a": 2}', "null", " null\n", " ", "", None]
    payloads = [
        "",
        " ",
        '{"int": 1',
        '{"int": NaN}',
        '{"int": 01}',
        '{"int": 1} {}',
        '{"string": "\\ud800"}',
        "\ufeff{}",
    ]
    return [
        *(Row("note", text) for text in texts),
        *(Row("every", text) for text in payloads),
        Row("every", '{"int": 1' + "0" * 1001 + "}"),
        *(Row("every", f'{{"{name}": 1e{sign}99999999999}}') for name in NUMBERS for sign in ("", "-")),
        *(Row("every", f'{{"{name}": 1e99999999999999999999}}') for name in (*NUMBERS, *TIMES)),
        Row("every", '{"map": {"' + "k" * 50_001 + '": 1}}'),
    ]


def binary_rows(ids: dict[str, int]) -> list[Row]:
    """Return rows for a bytea column. `ids` contains the schema ids by aggregate type."""
    loan = b"\x02x\x02y"
    framed = PREFIX.pack(0, ids["framed"])
    return [
        *(Row("body", data) for data in (loan, loan[:-1], loan + b"\0", b"", None, b"\x02\xff\x02y", b"\x01\x02")),
        Row("body", loan, extra={"schema_version": "1", "tenant": "t"}),
        Row("body", loan, extra={"schema_version": "7"}),
        Row("versions", loan),
        Row("versions", loan, extra={"schema_version": "1"}),
        Row("versions", loan, extra={"schema_version": "2"}),
        *(Row("framed", data) for data in (framed + loan, framed, framed + loan[:2], loan, b"", None)),
        Row("framed", PREFIX.pack(0, ids["body"] + 1_000_000) + loan),
        Row("framed", PREFIX.pack(1, ids["framed"]) + loan),
        *(Row("scan", data) for data in (bytes(range(256)), b"", None, b"x" * 1_000_001)),
        Row("scan", b"\xff", headers='{"a": {"b": 1}}', created_at="2026-11-20 18:31:38.1256+05:30"),
        Row("scan", b"\xff", headers='["bytes"]', event_type="Gone"),
    ]
