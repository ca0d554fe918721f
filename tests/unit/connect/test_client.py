"""The Connect client against a real HTTP server: what is retried, what is final, what is said."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Callable

import pytest
from pydantic import SecretStr
from tests.unit.support import Request, Script, ScriptedServer

from outbox_kit.connect import client as connect_client
from outbox_kit.connect.client import (
    ConnectClient,
    ConnectorStatus,
    NotFoundError,
    RebalanceError,
)
from outbox_kit.errors import OutboxKitError, RejectedError, UnreachableError
from outbox_kit.pipeline import HttpService

Serve = Callable[[Script], ScriptedServer]


def answer(status: int, message: str) -> tuple[int, object]:
    """An error in Connect's form."""
    return status, {"error_code": status, "message": message}


# Texts of Kafka 4.3: HerderRequestHandler, ConnectExceptionMapper, DistributedHerder.
EXISTS = answer(409, "Connector library-outbox already exists")
REBALANCES = [
    answer(409, "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"),
    answer(
        409,
        "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway.",
    ),
    answer(
        409,
        "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent "
        "config change)",
    ),
    answer(500, "Request cannot be completed because a rebalance is expected"),
]
TIMED_OUT = [
    answer(500, "Request timed out"),
    answer(500, "Request timed out. The worker is currently ensuring membership in the cluster, which began at X"),
    # A stage of the worker that speaks of a rebalance: the write may still have happened.
    answer(
        500,
        "Request timed out. The worker is currently starting 3 connector(s) and task(s) after a rebalance, "
        "which began at 2026-01-01T00:00:00Z",
    ),
]
CREATED = (201, {"name": "library-outbox"})


@pytest.fixture(autouse=True)
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_client, "REBALANCE_BUDGET_S", 1)


def client(server: ScriptedServer) -> ConnectClient:
    return ConnectClient(HttpService(url=server.url + "/"))


@pytest.mark.parametrize("rebalance", REBALANCES, ids=lambda line: str(line[1]["message"])[:60])
def test_a_rebalance_is_tried_again(serve: Serve, rebalance: tuple[int, object]) -> None:
    server = serve([rebalance, CREATED])
    client(server).create_stopped("library-outbox", {"a": "1"})
    assert server.seen == [server.seen[0], server.seen[0]]


def test_a_rebalance_that_does_not_end(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_client, "REBALANCE_BUDGET_S", 0.3)
    with pytest.raises(RebalanceError, match=r"conflicting operation .* \(HTTP 409\)") as caught:
        client(serve([REBALANCES[0]])).update("library-outbox", {})
    assert "workers' logs" in caught.value.hint


def test_a_connector_that_exists_is_final(serve: Serve) -> None:
    server = serve([EXISTS, CREATED])
    with pytest.raises(RejectedError, match=r"Connector library-outbox already exists \(HTTP 409\)"):
        client(server).create_stopped("library-outbox", {})
    assert len(server.seen) == 1


def test_a_connector_that_exists_is_final_whatever_its_name(serve: Serve) -> None:
    server = serve([answer(409, "Connector rebalance-audit already exists"), CREATED])
    with pytest.raises(RejectedError, match="already exists"):
        client(server).create_stopped("rebalance-audit", {})
    assert len(server.seen) == 1


@pytest.mark.parametrize("timed_out", TIMED_OUT, ids=["plain", "stage", "stage after a rebalance"])
def test_a_write_that_timed_out_is_not_repeated(serve: Serve, timed_out: tuple[int, object]) -> None:
    server = serve([timed_out, EXISTS])
    with pytest.raises(RejectedError, match="Request timed out"):
        client(server).create_stopped("library-outbox", {})
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (
            400,
            {"error_code": 400, "message": "Connector configuration is invalid"},
            "Connector configuration is invalid",
        ),
        (401, b"<html>who are you</html>", "Unauthorized"),
        (500, {"other": "shape"}, "Internal Server Error"),
        (502, b"", "Bad Gateway"),
        (500, ["a list"], "Internal Server Error"),
    ],
)
def test_a_refusal_says_where_what_and_why(serve: Serve, status: int, content: object, message: str) -> None:
    server = serve([(status, content)])
    with pytest.raises(RejectedError) as caught:
        client(server).update("c", {"database.password": "s3cret"})
    expected = f"Kafka Connect at {server.url}: PUT /connectors/c/config: {message} (HTTP {status})"
    assert caught.value.message == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [(lambda found: found.config("c"), None), (lambda found: found.status("c"), None)],
    ids=["config", "status"],
)
def test_what_is_not_there_is_none(serve: Serve, call: Callable[[ConnectClient], object], expected: object) -> None:
    assert call(client(serve([answer(404, "No status found for connector c")]))) is expected


def test_a_write_to_what_is_not_there_is_an_error(serve: Serve) -> None:
    with pytest.raises(NotFoundError, match=r"Connector c not found \(HTTP 404\)"):
        client(serve([answer(404, "Connector c not found")])).resume("c")


def test_an_unreachable_worker_is_named(free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}"
    service = HttpService(url=url, username="me", password=SecretStr("s3cret"))
    with pytest.raises(UnreachableError) as caught:
        ConnectClient(service).root()
    assert caught.value.message == f"cannot reach Kafka Connect at {url}: ConnectionError"
    assert "connect.url" in caught.value.hint
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("content", [b"<html>a login page</html>", b""], ids=["html", "empty"])
def test_an_answer_that_is_no_json_is_explained(serve: Serve, content: bytes) -> None:
    """For instance the address of a proxy, or of another service."""
    server = serve([(200, content)])
    with pytest.raises(OutboxKitError, match=server.url):
        client(server).config("c")


def test_credentials_go_into_the_header(serve: Serve) -> None:
    server = serve([(200, {"version": "4.3.1"})])
    service = HttpService(url=server.url, username="me", password=SecretStr("s3cret:x"))
    assert ConnectClient(service).root() == {"version": "4.3.1"}
    assert server.seen[0].authorization == "Basic " + base64.b64encode(b"me:s3cret:x").decode()


def test_credentials_of_the_machine_are_not_used(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password other\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server = serve([(200, {})])
    client(server).root()
    assert server.seen[0].authorization is None


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
    found = client(serve([(200, body)])).status("c")
    assert found == ConnectorStatus("RUNNING", ("FAILED", "RUNNING"), ("java.X: no",))
    assert found.words == "connector RUNNING, tasks: FAILED, RUNNING"
    assert ConnectorStatus("RUNNING", (), ()).words == "connector RUNNING, tasks: no task yet"


def test_validate_keeps_errors_and_drops_values(serve: Serve) -> None:
    """The worker's answer has placeholders resolved; nothing of it may get out."""
    body = {
        "name": "x.Y",
        "error_count": 2,
        "groups": [],
        "configs": [
            {"definition": {"name": "a"}, "value": {"name": "a", "value": "s3cret", "errors": []}},
            {"definition": None, "value": {"name": "b", "value": "s3cret", "errors": ["is wrong", "very"]}},
            {"definition": {"name": "c"}, "value": None},
            {"definition": {"name": "d"}},
        ],
    }
    server = serve([(200, body)])
    errors = client(server).validate("library-outbox", {"connector.class": "x.Y", "b": "1"})
    assert errors == {"b": ["is wrong", "very"]}
    assert server.seen == [
        Request(
            "PUT",
            "/connector-plugins/x.Y/config/validate",
            {"name": "library-outbox", "connector.class": "x.Y", "b": "1"},
        )
    ]


CALLS: list[tuple[Callable[[ConnectClient], object], object, Request, object]] = [
    (lambda c: c.root(), {"a": 1}, Request("GET", "/"), {"a": 1}),
    (
        lambda c: c.plugins(),
        [{"class": "A", "type": "source"}, {"class": "B"}],
        Request("GET", "/connector-plugins?connectorsOnly=false"),
        ["A", "B"],
    ),
    (lambda c: c.config("c"), {"a": "1"}, Request("GET", "/connectors/c/config"), {"a": "1"}),
    (
        lambda c: c.create_stopped("c", {"a": "1"}),
        {},
        Request("POST", "/connectors", {"name": "c", "config": {"a": "1"}, "initial_state": "STOPPED"}),
        None,
    ),
    (lambda c: c.update("c", {"a": "1"}), {}, Request("PUT", "/connectors/c/config", {"a": "1"}), None),
    (lambda c: c.resume("c"), None, Request("PUT", "/connectors/c/resume"), None),
    (lambda c: c.stop("c"), None, Request("PUT", "/connectors/c/stop"), None),
    (lambda c: c.restart("c"), None, Request("POST", "/connectors/c/restart?includeTasks=true"), None),
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
