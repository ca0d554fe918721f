"""Schemas that a run requests over the registry's HTTP API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from outbox_events.errors import RejectedError, UnreachableError
from outbox_events.http_session import HttpEndpoint
from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.errors import SchemaError

SCHEMA = '{"type":"string"}'
GUID = "89791762-2336-186f-9674-299b90a8e2ad"
RESPONSES: dict[str, Any] = {
    "/api/subjects/t-value/versions/latest": {"subject": "t-value", "id": 7, "version": 2, "schema": SCHEMA},
    "/api/subjects/many/versions": [5, 1, 3, 4],
    "/api/subjects/many/versions/3": {"id": 13, "schema": SCHEMA},
    "/api/subjects/many/versions/4": {"id": 14, "schema": "syntax = ...", "schemaType": "PROTOBUF"},
    "/api/subjects/many/versions/5": {"id": 15, "schema": SCHEMA},
    "/api/subjects/named/versions": [1, 2],
    "/api/subjects/named/versions/1": {"id": 31, "schema": SCHEMA, "guid": GUID.upper()},
    "/api/subjects/named/versions/2": {"id": 32, "schema": SCHEMA, "guid": None},
    "/api/schemas/ids/3": {"schema": SCHEMA},
    "/api/schemas/ids/4": {"schema": "syntax = ...", "schemaType": "PROTOBUF"},
    "/api/schemas/ids/5": {"schema": SCHEMA, "references": [{"name": "io.Other", "subject": "gone-o", "version": 1}]},
    "/api/schemas/ids/6": {
        "schema": '{"type":"record","name":"io.Order","fields":'
        '[{"name":"a","type":"Money"},{"name":"b","type":"Money"}]}',
        "references": [
            {"name": "io.Money", "subject": "io.Money", "version": 2},
            {"name": "io.Unit", "subject": "io.Unit", "version": 1},
        ],
    },
    "/api/subjects/io.Money/versions/2": {
        "id": 21,
        "schema": '{"type":"record","name":"io.Money","fields":[{"name":"unit","type":"Unit"}]}',
        "references": [{"name": "io.Unit", "subject": "io.Unit", "version": 1}],
    },
    "/api/subjects/io.Unit/versions/1": {"id": 20, "schema": '{"type":"enum","name":"io.Unit","symbols":["EUR"]}'},
}


class Handler(BaseHTTPRequestHandler):
    """Responds like Confluent Cloud. Paths that are neither in RESPONSES nor paths of an id return status 500."""

    requested_paths: list[str]

    def do_GET(self) -> None:
        self.requested_paths.append(self.path)
        status = 200 if self.path in RESPONSES else 404 if "ids" in self.path or "gone" in self.path else 500
        response = RESPONSES.get(self.path, {"error_code": 40403})
        if isinstance(response, dict) and self.headers.get("Confluent-Accept-Unknown-Properties") != "true":
            response = {name: value for name, value in response.items() if name != "guid"}
        body = json.dumps(response).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def requested_paths() -> list[str]:
    return []


@pytest.fixture
def registry(requested_paths: list[str]) -> Iterator[SchemaRegistry]:
    handler = type("RecordingHandler", (Handler,), {"requested_paths": requested_paths})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with SchemaRegistry(HttpEndpoint(f"http://127.0.0.1:{server.server_port}/api/")) as client:
        yield client
    server.shutdown()
    thread.join()
    server.server_close()


def test_requests_each_schema_once(registry: SchemaRegistry, requested_paths: list[str]) -> None:
    assert registry.latest("t-value") == SCHEMA
    assert [registry.schema(number) for number in (7, 3, 3, 9, 9)] == [SCHEMA, SCHEMA, SCHEMA, None, None]
    assert requested_paths == ["/api/subjects/t-value/versions/latest", "/api/schemas/ids/3", "/api/schemas/ids/9"]


def test_recent_schemas_are_the_latest_usable_and_those_in_use(
    registry: SchemaRegistry, requested_paths: list[str]
) -> None:
    for number in (3, 9):
        registry.schema(number)
    requested_paths.clear()
    for _ in range(2):
        assert registry.recent("many") == {3: SCHEMA, 13: SCHEMA, 15: SCHEMA}
    versions = "/api/subjects/many/versions"
    assert requested_paths == [versions, *(f"{versions}/{number}" for number in (3, 4, 5)), versions]


def test_knows_versions_also_by_their_guid(registry: SchemaRegistry, requested_paths: list[str]) -> None:
    assert registry.all_versions("named") == {31: SCHEMA, GUID: SCHEMA, 32: SCHEMA}
    requested_paths.clear()
    assert (registry.schema(GUID), requested_paths) == (SCHEMA, [])


def test_accepts_a_registry_that_lists_no_versions(registry: SchemaRegistry) -> None:
    assert registry.recent("gone-value") == {}


def test_reports_a_missing_subject(registry: SchemaRegistry) -> None:
    with pytest.raises(SchemaError, match="has no subject gone-value"):
        registry.latest("gone-value")


def test_inlines_types_of_references(registry: SchemaRegistry, requested_paths: list[str]) -> None:
    unit = {"type": "enum", "name": "io.Unit", "symbols": ["EUR"]}
    money = {"type": "record", "name": "io.Money", "fields": [{"name": "unit", "type": unit}]}
    fields = [{"name": "a", "type": money}, {"name": "b", "type": "io.Money"}]
    for _ in range(2):
        text = registry.schema(6)
        assert text is not None
        assert json.loads(text) == {"type": "record", "name": "io.Order", "fields": fields}
    assert len(requested_paths) == len(set(requested_paths)) == 3


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (4, "schema id 4 is PROTOBUF"),
        (5, r"schema id 5 references io\.Other, but the registry has no version 1 of subject gone-o"),
    ],
)
def test_rejects_unreadable_schemas(registry: SchemaRegistry, number: int, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        registry.schema(number)


def test_reports_an_error_of_the_registry(registry: SchemaRegistry) -> None:
    with pytest.raises(RejectedError, match=r"subject broken: .* \(HTTP 500\)"):
        registry.latest("broken")


def test_reports_an_unreachable_registry() -> None:
    with (
        SchemaRegistry(HttpEndpoint("http://127.0.0.1:1", "u", "s3cret")) as client,
        pytest.raises(UnreachableError, match="connection refused") as caught,
    ):
        client.latest("t-value")
    assert "s3cret" not in str(caught.value)
