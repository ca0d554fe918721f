"""Decoders of record values, with values that fastavro encodes and a registry that is one HTTP handler."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest

from outbox_events import AvroValues, json_value, raw
from outbox_events.contract.wire_format import PREFIX
from outbox_events.errors import ConfigurationError, OutboxError, UnreachableError
from outbox_events.http_session import HttpEndpoint
from outbox_events.receiving.event import Event, InvalidRecordError

AUTHOR = {
    "type": "record",
    "name": "Author",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "name", "type": "string"},
        {"name": "born", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "rate", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
    ],
}
AUTHOR_VALUE = {
    "id": UUID(int=7),
    "name": "Ursula",
    "born": date(1929, 10, 21),
    "at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "rate": Decimal("12.50"),
}
SHORT = {
    "type": "record",
    "name": "Author",
    "fields": [{"name": "name", "type": "string"}, {"name": "country", "type": "string", "default": "?"}],
}
COUNTRY = {"type": "enum", "name": "Country", "symbols": ["US", "PL"]}
BOOK = {"type": "record", "name": "Book", "fields": [{"name": "country", "type": "Country"}]}


NO_SCHEMA: tuple[int, dict[str, Any]] = (404, {"error_code": 40403, "message": "Schema not found"})


class FakeRegistry:
    """Responses by path. `requests` contains the requested paths."""

    def __init__(self) -> None:
        self.responses: dict[str, tuple[int, dict[str, Any]]] = {}
        self.requests: list[tuple[str, str | None]] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.requests.append((self.path, self.headers["Authorization"]))
                status, body = registry.responses.get(self.path, NO_SCHEMA)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def add(self, schema_id: int, schema: object, **fields: object) -> None:
        self.responses[f"/schemas/ids/{schema_id}"] = (200, {"schema": json.dumps(schema), **fields})


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    fake.add(1, AUTHOR)
    thread = threading.Thread(target=fake.server.serve_forever, daemon=True)
    thread.start()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
    thread.join(5)


def encoded(schema: dict[str, Any], value: object, schema_id: int = 1) -> bytes:
    out = io.BytesIO(PREFIX.pack(0, schema_id))
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def event(value: bytes | None) -> Event:
    return Event("library.author", 0, 5, b"a-1", value)


def test_decodes_logical_types_and_requests_a_schema_once(registry: FakeRegistry) -> None:
    decode = AvroValues(registry.url)
    assert [decode(event(encoded(AUTHOR, AUTHOR_VALUE))) for _ in range(3)] == [AUTHOR_VALUE] * 3
    assert registry.requests == [("/schemas/ids/1", None)]


def test_reader_schema_hides_other_fields_and_adds_defaults(registry: FakeRegistry, tmp_path: Path) -> None:
    file = tmp_path / "author.avsc"
    file.write_text(json.dumps(SHORT), encoding="utf-8")
    for schema in (SHORT, json.dumps(SHORT), file):
        decode = AvroValues(registry.url, reader_schema=schema)
        assert decode(event(encoded(AUTHOR, AUTHOR_VALUE))) == {"name": "Ursula", "country": "?"}


def test_values_do_not_share_a_default_of_the_reader_schema(registry: FakeRegistry) -> None:
    """A handler can change the value, and fastavro returns the default of the schema itself."""
    tags = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}
    decode = AvroValues(registry.url, reader_schema={**SHORT, "fields": [*SHORT["fields"], tags]})
    for _ in range(2):
        value = decode(event(encoded(AUTHOR, AUTHOR_VALUE)))
        assert value["tags"] == []
        value["tags"].append("changed")


def test_defaults_of_the_reader_schema_are_decoded(registry: FakeRegistry) -> None:
    day = {"type": "int", "logicalType": "date"}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    owner = {"type": "record", "name": "Owner", "fields": [{"name": "since", "type": day, "default": 1}]}
    kind = {"type": "enum", "name": "Kind", "symbols": ["NEW"]}
    fields = [
        {"name": "day", "type": ["null", day], "default": None},
        {"name": "days", "type": {"type": "array", "items": day}, "default": [0]},
        {"name": "prices", "type": {"type": "map", "values": price}, "default": {"a": "\u0004\u00e2"}},
        {"name": "owner", "type": owner, "default": {}},
        {"name": "heir", "type": "Owner", "default": {"since": 2}},
        {"name": "until", "type": [day, "null"], "default": 3},
        {"name": "raw", "type": {"type": "fixed", "name": "F", "size": 1}, "default": "\u00ff"},
        {"name": "last", "type": ["null", day], "default": 5},
        {"name": "none", "type": [price, "null"], "default": None},
        {"name": "id", "type": [kind, {"type": "string", "logicalType": "uuid"}], "default": str(UUID(int=7))},
        {"name": "fine", "type": ["F", price], "default": "\u0004\u00e2"},
        {
            "name": "until_ms",
            "type": [day, {"type": "long", "logicalType": "timestamp-millis"}],
            "default": 2**31 * 1000,
        },
        {"name": "forever", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 2**63 - 1},
    ]
    schema = fastavro.parse_schema({**SHORT, "fields": fields})
    for _ in range(2):
        decode = AvroValues(registry.url, reader_schema=schema)  # type: ignore[arg-type]
    json.dumps(schema)  # it is not changed
    assert decode(event(encoded(AUTHOR, AUTHOR_VALUE))) == {
        "day": None,
        "days": [date(1970, 1, 1)],
        "prices": {"a": Decimal("12.50")},
        "owner": {"since": date(1970, 1, 2)},
        "heir": {"since": date(1970, 1, 3)},
        "until": date(1970, 1, 4),
        "raw": b"\xff",
        "last": date(1970, 1, 6),
        "none": None,
        "id": UUID(int=7),
        "fine": Decimal("12.50"),
        "until_ms": datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
        "forever": 2**63 - 1,
    }


def test_defaults_with_types_of_another_file_are_decoded(registry: FakeRegistry) -> None:
    named: dict[str, Any] = {}
    fixed = {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 2}
    fastavro.parse_schema(fixed, named_schemas=named)
    field = {"name": "price", "type": "F", "default": "\u0007"}
    decode = AvroValues(registry.url, reader_schema=fastavro.parse_schema({**SHORT, "fields": [field]}, named))  # type: ignore[arg-type]
    assert decode(event(encoded(AUTHOR, AUTHOR_VALUE))) == {"price": Decimal(7)}


@pytest.mark.parametrize("top_level", [{"type": "array"}, {"type": "map"}])
def test_a_reader_schema_that_is_no_record(registry: FakeRegistry, top_level: dict[str, Any]) -> None:
    key = "items" if top_level["type"] == "array" else "values"
    day = {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 1}
    values: dict[str, Any] = {"items": [AUTHOR_VALUE], "values": {"a": AUTHOR_VALUE}}
    registry.add(1, {**top_level, key: AUTHOR})
    decode = AvroValues(registry.url, reader_schema={**top_level, key: {**SHORT, "fields": [day]}})
    found = decode(event(encoded({**top_level, key: AUTHOR}, values[key])))
    assert found == {"items": [{"day": 1}], "values": {"a": {"day": 1}}}[key]  # see parse_with_decoded_defaults


def test_defaults_in_a_union_of_records_are_decoded(registry: FakeRegistry) -> None:
    day = {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 1}
    decode = AvroValues(registry.url, reader_schema=json.dumps(["null", {**SHORT, "fields": [day]}]))
    assert decode(event(encoded(AUTHOR, AUTHOR_VALUE))) == {"day": date(1970, 1, 2)}


def test_schema_with_a_reference(registry: FakeRegistry) -> None:
    registry.add(2, BOOK, references=[{"name": "Country", "subject": "country", "version": 3}])
    registry.responses["/subjects/country/versions/3"] = (200, {"version": 3, "id": 1, "schema": json.dumps(COUNTRY)})
    inlined = {**BOOK, "fields": [{"name": "country", "type": COUNTRY}]}
    assert AvroValues(registry.url)(event(encoded(inlined, {"country": "PL"}, 2))) == {"country": "PL"}


def test_missing_reference(registry: FakeRegistry) -> None:
    registry.add(2, BOOK, references=[{"name": "Country", "subject": "country", "version": 3}])
    with pytest.raises(InvalidRecordError):
        AvroValues(registry.url)(event(PREFIX.pack(0, 2) + b"\0"))


def test_credentials(registry: FakeRegistry) -> None:
    AvroValues(HttpEndpoint(registry.url, token="abc"))(event(encoded(AUTHOR, AUTHOR_VALUE)))
    assert registry.requests == [("/schemas/ids/1", "Bearer abc")]


SECRET = {**AUTHOR_VALUE, "name": "SECRET"}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"SECRET",
        encoded(AUTHOR, SECRET)[:-3],
        encoded(AUTHOR, SECRET) + b"SECRET",
        encoded(AUTHOR, SECRET, schema_id=9),
        PREFIX.pack(0, 1) + b"\x0cSECRET\xff\xff",
    ],
)
def test_undecodable_values_have_no_payload_in_the_error(registry: FakeRegistry, value: bytes) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        AvroValues(registry.url)(event(value))
    error = caught.value
    assert "SECRET" not in f"{error.message} {error.hint} {error.__cause__}"
    assert "library.author/0/5" in error.message


def test_schema_of_another_type(registry: FakeRegistry) -> None:
    registry.add(3, {}, schemaType="JSON")
    with pytest.raises(InvalidRecordError):
        AvroValues(registry.url)(event(PREFIX.pack(0, 3)))


def test_incompatible_reader_schema(registry: FakeRegistry) -> None:
    fields = [{"name": "missing", "type": "string"}]
    decode = AvroValues(registry.url, reader_schema={"type": "record", "name": "Author", "fields": fields})
    with pytest.raises(InvalidRecordError) as caught:
        decode(event(encoded(AUTHOR, AUTHOR_VALUE)))
    assert caught.value.hint


def test_incompatible_fields_are_named(registry: FakeRegistry) -> None:
    wrong = {"name": "born", "type": "string"}
    added = {"name": "added", "type": "string"}
    reader_schema = {**SHORT, "fields": [*SHORT["fields"], wrong, added]}  # type: ignore[misc]
    with pytest.raises(InvalidRecordError) as caught:
        AvroValues(registry.url, reader_schema=reader_schema)(event(encoded(AUTHOR, AUTHOR_VALUE)))
    assert caught.value.message.endswith(": born, added")


def test_unavailable_registry_is_transient_and_asked_again(registry: FakeRegistry) -> None:
    decode, value = AvroValues(registry.url, seconds=5), encoded(AUTHOR, AUTHOR_VALUE)
    available = registry.responses.pop("/schemas/ids/1")
    registry.responses["/schemas/ids/1"] = (503, {"message": "starting"})
    with pytest.raises(OutboxError) as caught:
        decode(event(value))
    assert caught.value.transient
    registry.responses["/schemas/ids/1"] = available
    assert decode(event(value)) == AUTHOR_VALUE


def test_a_server_without_the_api_is_no_missing_schema(registry: FakeRegistry) -> None:
    """Otherwise, a wrong URL would send every event to the dead letter topic."""
    registry.responses["/schemas/ids/7"] = (404, {"error": "no such page"})
    with pytest.raises(UnreachableError, match="HTTP 404"):
        AvroValues(registry.url)(event(encoded(AUTHOR, AUTHOR_VALUE, schema_id=7)))


def test_unreachable_registry() -> None:
    with pytest.raises(UnreachableError):
        AvroValues("http://127.0.0.1:1", seconds=2)(event(encoded(AUTHOR, AUTHOR_VALUE)))


def with_default(kind: object, default: object) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, "default": default}]}


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("double", 0, "0.0"),
        ("double", 2**53 + 1, repr(2.0**53)),
        (["long", "double"], 2**63, repr(2.0**63)),
        (["int", "long"], 2**31, repr(2**31)),
        ("float", 0.1, "0.10000000149011612"),
        ("float", -1e300, "-inf"),
    ],
)
def test_numeric_defaults_equal_decoded_values(
    registry: FakeRegistry, kind: object, default: object, expected: str
) -> None:
    decode = AvroValues(registry.url, reader_schema={**with_default(kind, default), "name": "Author"})
    assert repr(decode(event(encoded(AUTHOR, AUTHOR_VALUE)))["a"]) == expected


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        "{}",
        {"type": "nothing"},
        with_default("bytes", 1),
        with_default("long", 2**63),
        with_default("int", -(2**31) - 1),
        with_default("double", 10**400),
        Path("/missing/author.avsc"),
    ],
)
def test_invalid_reader_schema(schema: dict[str, Any] | str | Path) -> None:
    with pytest.raises(ConfigurationError):
        AvroValues("http://127.0.0.1:1", reader_schema=schema)


def test_json_value() -> None:
    assert json_value(event('{"name": "Łem"}'.encode())) == {"name": "Łem"}
    assert raw(event(b"\xff")) == b"\xff"


@pytest.mark.parametrize("value", [b"", b"{SECRET", b"\xff", b"NaN", b"[" * 100_000])
def test_invalid_json(value: bytes) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        json_value(event(value))
    assert "SECRET" not in caught.value.message
