"""The Connect client with a real HTTP server: one endpoint per method, and the parsed responses and traces."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import SecretStr
from tests.unit.connect_samples import TRACE
from tests.unit.support import Request, Script, ScriptedServer

from outbox_kit.connect.client import (
    MAX_CHARACTERS,
    ConnectClient,
    ConnectorStatus,
    LiveConnector,
    Validation,
    root_cause,
)
from outbox_kit.pipeline import HttpService

Serve = Callable[[Script], ScriptedServer]


def answer(status: int, message: str) -> tuple[int, object]:
    """An error response in Connect's format."""
    return status, {"error_code": status, "message": message}


def client(server: ScriptedServer) -> ConnectClient:
    return ConnectClient(HttpService(url=server.url + "/"))


@pytest.mark.parametrize(
    ("call", "expected"),
    [(lambda connect: connect.config("c"), None), (lambda connect: connect.status("c"), None)],
    ids=["config", "status"],
)
def test_returns_none_for_missing_objects(
    serve: Serve, call: Callable[[ConnectClient], object], expected: object
) -> None:
    assert call(client(serve([answer(404, "No status found for connector c")]))) is expected


def test_status(serve: Serve) -> None:
    body = {
        "name": "c",
        "connector": {"state": "RUNNING", "worker_id": "w:1", "version": "3.7"},
        "tasks": [
            {"id": 0, "state": "FAILED", "worker_id": "w:1", "trace": "java.X: no"},
            {"id": 1, "state": "RUNNING", "worker_id": "w:1", "trace": ""},
        ],
        "type": "source",
    }
    actual = client(serve([(200, body)])).status("c")
    assert actual == ConnectorStatus("RUNNING", ("FAILED", "RUNNING"), ("java.X: no",), ("w:1", "w:1", "w:1"))
    assert actual.text == "connector RUNNING, tasks: FAILED, RUNNING"
    assert ConnectorStatus("RUNNING", (), ()).text == "connector RUNNING, tasks: no task yet"


def test_validate_returns_errors_without_values(serve: Serve) -> None:
    """The worker's response contains resolved placeholders, which must not be printed."""
    resolved: list[tuple[str, object, list[str]]] = [
        ("a", "s3cret", []),
        ("b", "s3cret", ["is wrong", "very"]),
        ("user", "${env:NOT_SET}", []),
        ("host", "db-${file:/secrets:host}.internal", []),
        ("password", "[hidden]", []),
        ("replacement", "$1-${group}", []),  # a group of RegexRouter, not a placeholder of Connect
        ("none", None, []),
    ]
    body = {
        "name": "x.Y",
        "error_count": 2,
        "groups": [],
        "configs": [
            *({"definition": None, "value": dict(zip(("name", "value", "errors"), e, strict=True))} for e in resolved),
            {"definition": {"name": "c"}, "value": None},
            {"definition": {"name": "d"}},
        ],
    }
    server = serve([(200, body)])
    actual = client(server).validate("library-outbox", {"connector.class": "x.Y", "b": "1"})
    assert actual == Validation(errors={"b": ["is wrong", "very"]}, unresolved_keys=["host", "user"])
    assert server.seen == [
        Request(
            "PUT",
            "/connector-plugins/x.Y/config/validate",
            {"name": "library-outbox", "connector.class": "x.Y", "b": "1"},
        )
    ]


def test_reads_all_connectors_in_one_call(serve: Serve) -> None:
    """The number of requests does not depend on the number of connectors. Unknown fields are ignored."""
    connectors = {
        f"c{number}": {
            "info": {"name": f"c{number}", "config": {"a": str(number)}, "tasks": [], "type": "source", "new": 1},
            "status": {"connector": {"state": "RUNNING", "new": 1}, "tasks": [{"state": "FAILED", "trace": "x"}]},
            "new": {},
        }
        for number in range(200)
    }
    bodies: dict[str, object] = {**connectors, "young": {"info": {"config": {}}}, "going": {"status": None}}
    server = serve([(200, bodies)])
    actual = client(server).listed_connectors()
    assert [(request.method, request.path) for request in server.seen] == [
        ("GET", "/connectors?expand=info&expand=status")
    ]
    assert len(actual) == 201
    assert actual["c7"] == LiveConnector({"a": "7"}, ConnectorStatus("RUNNING", ("FAILED",), ("x",), ("", "")))
    assert actual["young"] == LiveConnector({}, None)


def test_requests_to_another_worker_use_the_same_credentials(serve: Serve) -> None:
    first, second = serve([(200, {})]), serve([(200, [])])
    service = HttpService(url=first.url, token=SecretStr("t0ken"))
    ConnectClient(service).for_worker(second.url).plugin_versions()
    assert (first.seen, [request.authorization for request in second.seen]) == ([], ["Bearer t0ken"])


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("a b", "a%20b"),
        ("a/b?c#d", "a%2Fb%3Fc%23d"),
        ("über", "%C3%BCber"),
        ("a%2Fb", "a%252Fb"),
        ("a.b_c-d", "a.b_c-d"),
    ],
)
def test_encodes_names(serve: Serve, name: str, segment: str) -> None:
    server = serve([(200, {})])
    client(server).config(name)
    client(server).stop(name)
    assert [request.path for request in server.seen] == [f"/connectors/{segment}/config", f"/connectors/{segment}/stop"]


CALLS: list[tuple[Callable[[ConnectClient], object], object, Request, object]] = [
    (lambda c: c.worker_info(), {"a": 1}, Request("GET", "/"), {"a": 1}),
    (lambda c: c.config("c"), {"a": "1"}, Request("GET", "/connectors/c/config"), {"a": "1"}),
    (
        lambda c: c.create_stopped("c", {"a": "1"}),
        {},
        Request("POST", "/connectors", {"name": "c", "config": {"a": "1"}, "initial_state": "STOPPED"}),
        None,
    ),
    (lambda c: c.update_config("c", {"a": "1"}), {}, Request("PUT", "/connectors/c/config", {"a": "1"}), None),
    (lambda c: c.resume("c"), None, Request("PUT", "/connectors/c/resume"), None),
    (lambda c: c.stop("c"), None, Request("PUT", "/connectors/c/stop"), None),
    (lambda c: c.pause("c"), None, Request("PUT", "/connectors/c/pause"), None),
    (lambda c: c.delete("c"), None, Request("DELETE", "/connectors/c"), None),
    (lambda c: c.restart("c"), None, Request("POST", "/connectors/c/restart?includeTasks=true"), None),
    (
        lambda c: c.restart("c", only_failed=True),
        {"name": "c", "connector": {"state": "RUNNING"}, "tasks": []},
        Request("POST", "/connectors/c/restart?includeTasks=true&onlyFailed=true"),
        None,
    ),
    (
        lambda c: c.plugin_versions(),
        [{"class": "A", "type": "source", "version": "3.7"}, {"class": "B"}, {"class": "C", "version": None}],
        Request("GET", "/connector-plugins?connectorsOnly=false"),
        {"A": "3.7", "B": "unknown", "C": "unknown"},
    ),
    (
        lambda c: c.loggers(),
        {"root": {"level": "INFO", "last_modified": None}, "io.debezium": {"level": "DEBUG"}},
        Request("GET", "/admin/loggers"),
        {"root": "INFO", "io.debezium": "DEBUG"},
    ),
    (
        lambda c: c.set_log_level("io.debezium", "TRACE"),
        None,
        Request("PUT", "/admin/loggers/io.debezium?scope=cluster", {"level": "TRACE"}),
        None,
    ),
    (
        lambda c: c.offsets("c"),
        {"offsets": [{"partition": {}, "offset": {}}]},
        Request("GET", "/connectors/c/offsets"),
        [{"partition": {}, "offset": {}}],
    ),
    (lambda c: c.delete_offsets("c"), {"message": "ok"}, Request("DELETE", "/connectors/c/offsets"), None),
    (
        lambda c: c.patch_offsets("c", {"server": "p"}, {"lsn": 1}),
        {"message": "ok"},
        Request(
            "PATCH",
            "/connectors/c/offsets",
            {"offsets": [{"partition": {"server": "p"}, "offset": {"lsn": 1}}]},
        ),
        None,
    ),
]


@pytest.mark.parametrize(
    ("call", "content", "request_", "result"), CALLS, ids=[f"{r.method} {r.path}" for _, _, r, _ in CALLS]
)
def test_one_endpoint_per_method(
    serve: Serve, call: Callable[[ConnectClient], object], content: object, request_: Request, result: object
) -> None:
    server = serve([(200, content)])
    assert call(client(server)) == result
    assert server.seen == [request_]


# Traces of Kafka Connect 4.3 and Debezium 3.7, with some frames removed.
NO_SLOT = (
    "io.debezium.DebeziumException: Failed to start replication stream at LSN{0/1A2B3C4}\n"
    "\tat io.debezium.connector.postgresql.connection.PostgresReplicationConnection.startStreaming(X.java:1)\n"
    'Caused by: org.postgresql.util.PSQLException: ERROR: replication slot "library_outbox" does not exist\n'
    "  Hint: Create it first.\n"
    '  Where: slot "library_outbox", in the startup callback\n'
    "\tat org.postgresql.core.v3.QueryExecutorImpl.receiveErrorResponse(QueryExecutorImpl.java:2733)\n"
    "\t... 12 more\n"
)
REFUSED = (
    "org.apache.kafka.connect.errors.ConnectException: Could not connect\n\tat x\n"
    "Caused by: org.postgresql.util.PSQLException: Connection to db:5432 refused. Check the host\n"
    "\tat x\nCaused by: java.net.ConnectException: Connection refused\n\tat x\n"
)
CAUSE_WITHOUT_MESSAGE = "x.ConnectException: Error while polling\n\tat x\nCaused by: java.io.EOFException\n\tat x\n"
TOLERANCE = (
    "org.apache.kafka.connect.errors.ConnectException: Tolerance exceeded in error handler\n\tat x\n"
    "Caused by: org.apache.kafka.connect.errors.DataException: Invalid JSON for record: Struct{a=s3cret}\n\tat"
)


OFFSET_LOST = (
    "io.debezium.DebeziumException: at PostgresOffsetContext [sourceInfoSchema=Schema{io.x.Source:STRUCT}, "
    "sourceInfo=source_info[lsn=LSN{0/1A}], seen=[]] but this is no longer available\n\tat x"
)


@pytest.mark.parametrize(
    ("traces", "cause"),
    [
        ((), "no trace"),
        (("",), ""),
        ((TRACE,), "org.postgresql.util.PSQLException: ERROR: publication does not exist"),
        (("java.X: alone\n\tat y",), "java.X: alone"),
        (("java.X: alone",), "java.X: alone"),
        (("java.X: a\n\tSuppressed: java.Y\n\tCaused by: java.Z: of the suppressed\n",), "java.X: a"),
        ((TRACE, "java.X: another task's"), "org.postgresql.util.PSQLException: ERROR: publication does not exist"),
        (
            (NO_SLOT,),
            'org.postgresql.util.PSQLException: ERROR: replication slot "library_outbox" does not exist '
            "Hint: Create it first.",
        ),
        (
            (REFUSED,),
            "org.postgresql.util.PSQLException: Connection to db:5432 refused. Check the host",
        ),
        ((CAUSE_WITHOUT_MESSAGE,), "x.ConnectException: Error while polling (java.io.EOFException)"),
        ((OFFSET_LOST,), "io.debezium.DebeziumException: at PostgresOffsetContext […] but this is no longer available"),
        ((TOLERANCE,), "org.apache.kafka.connect.errors.DataException: Invalid JSON for record: …"),
    ],
)
def test_returns_the_root_cause(traces: tuple[str, ...], cause: str) -> None:
    assert root_cause(traces) == cause


@pytest.mark.parametrize(
    "message",
    [
        'com.fasterxml.jackson.core.JsonParseException: Unexpected character at [Source: (byte[])"s3cret"; line: 1]',
        "x.DataException: Struct{id=1,payload=s3cret}",
        "x.SerializationException: cannot serialize SourceRecord{sourcePartition={server=x}, value=s3cret}",
        "org.postgresql.util.PSQLException: ERROR: new row violates a check\n  Detail: Failing row contains (s3cret).",
        "org.postgresql.util.PSQLException: ERROR: duplicate Key (id)=(s3cret) already exists.",
        "x.DataException: not valid: value: s3cret",
        'x.DataException: not valid: {\n  "a": "s3cret"}',
    ],
)
def test_removes_row_contents(message: str) -> None:
    for trace in (message, f"{message}\n\tat x", f"java.X: y\n\tat x\nCaused by: {message}\n\tat x"):
        actual = root_cause((trace,))
        assert "s3cret" not in actual
        assert actual.startswith(message[:20])


def test_keeps_placeholders() -> None:
    assert root_cause(("x.Y: cannot resolve ${env:NAME} in it",)) == "x.Y: cannot resolve ${env:NAME} in it"


def test_truncates_a_long_message() -> None:
    actual = root_cause(("x.Y: " + "a" * 5000,))
    assert len(actual) == MAX_CHARACTERS + 1
    assert actual.endswith("…")
