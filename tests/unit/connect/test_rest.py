"""Requests to Kafka Connect, with a real HTTP server: retries, permanent errors, and messages."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr
from tests.unit.support import Page, Redirect, Script, ScriptedServer

from outbox_events.errors import OutboxError, RejectedError, UnreachableError
from outbox_kit.connect import rest
from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.rest import AlreadyExistsError, NotFoundError, RebalanceError, UnknownOutcomeError
from outbox_kit.pipeline import Connect, HttpService

Serve = Callable[[Script], ScriptedServer]


def answer(status: int, message: str) -> tuple[int, object]:
    """An error response in Connect's format."""
    return status, {"error_code": status, "message": message}


def client(server: ScriptedServer) -> ConnectClient:
    return ConnectClient(HttpService(url=server.url + "/"))


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
    # RestClient: the leader of the group has failed, and the group has not elected a new leader.
    answer(500, "IO Error trying to forward REST request: java.net.SocketTimeoutException: Connect Timeout"),
    answer(500, "IO Error trying to forward REST request: java.net.ConnectException: Connection refused"),
]
UNKNOWN_OUTCOMES = [
    answer(500, "Request timed out"),
    answer(500, "Request timed out. The worker is currently ensuring membership in the cluster, which began at X"),
    # The message mentions a rebalance, but the write may have taken effect.
    answer(
        500,
        "Request timed out. The worker is currently starting 3 connector(s) and task(s) after a rebalance, "
        "which began at 2026-01-01T00:00:00Z",
    ),
    # The leader may have received the request before it failed.
    answer(500, "IO Error trying to forward REST request: java.io.EOFException"),
]
CREATED = (201, {"name": "library-outbox"})


@pytest.fixture(autouse=True)
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "REBALANCE_BUDGET_S", 1)


@pytest.mark.parametrize("rebalance", REBALANCES, ids=lambda line: str(line[1]["message"])[:60])
def test_retries_during_a_rebalance(serve: Serve, rebalance: tuple[int, object]) -> None:
    server = serve([rebalance, CREATED])
    client(server).create_stopped("library-outbox", {"a": "1"})
    assert server.seen == [server.seen[0], server.seen[0]]


def test_reports_a_rebalance_that_does_not_end(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "REBALANCE_BUDGET_S", 0.3)
    with pytest.raises(RebalanceError, match=r"conflicting operation .* \(HTTP 409\)") as caught:
        client(serve([REBALANCES[0]])).update_config("library-outbox", {})
    assert "workers' logs" in caught.value.hint


def test_does_not_retry_for_an_existing_connector(serve: Serve) -> None:
    server = serve([EXISTS, CREATED])
    with pytest.raises(AlreadyExistsError, match=r"Connector library-outbox already exists \(HTTP 409\)"):
        client(server).create_stopped("library-outbox", {})
    assert len(server.seen) == 1


def test_does_not_retry_for_an_existing_connector_of_any_name(serve: Serve) -> None:
    server = serve([answer(409, "Connector rebalance-audit already exists"), CREATED])
    with pytest.raises(RejectedError, match="already exists"):
        client(server).create_stopped("rebalance-audit", {})
    assert len(server.seen) == 1


@pytest.mark.parametrize("unknown", UNKNOWN_OUTCOMES, ids=["plain", "stage", "stage after a rebalance", "forwarded"])
def test_does_not_repeat_a_write_with_an_unknown_outcome(serve: Serve, unknown: tuple[int, object]) -> None:
    server = serve([unknown, EXISTS])
    with pytest.raises(UnknownOutcomeError):
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
        (500, {"other": "shape"}, "Internal Server Error"),
        (502, b"", "Bad Gateway"),
        (500, ["a list"], "Internal Server Error"),
    ],
)
def test_rejection_reports_url_request_and_reason(serve: Serve, status: int, content: object, message: str) -> None:
    server = serve([(status, content)])
    with pytest.raises(RejectedError) as caught:
        client(server).update_config("c", {"database.password": "s3cret"})
    expected = f"Kafka Connect at {server.url}: PUT /connectors/c/config: {message} (HTTP {status})"
    assert caught.value.message == expected


def test_rejects_a_write_to_a_missing_object(serve: Serve) -> None:
    with pytest.raises(NotFoundError, match=r"Connector c not found \(HTTP 404\)"):
        client(serve([answer(404, "Connector c not found")])).resume("c")


def test_reports_an_unreachable_worker(free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}"
    service = HttpService(url=url, username="me", password=SecretStr("s3cret"))
    with pytest.raises(UnreachableError) as caught:
        ConnectClient(service).worker_info()
    assert caught.value.message == f"cannot reach Kafka Connect at {url}: connection refused"
    assert "connect.url" in caught.value.hint
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("silent", ["nobody", "a proxy"])
def test_tries_each_worker_until_one_responds(
    serve: Serve, free_port: int, silent: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = f"http://127.0.0.1:{free_port}/" if silent == "nobody" else serve([(503, b"")]).url
    second = serve([(200, {}), (204, b"")])
    cluster = Connect(url=first, workers=[second.url])
    requests = ConnectClient(cluster, cluster.addresses)
    requests.config("c")
    requests.stop("c")
    assert (requests.url, len(second.seen)) == (second.url, 2)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith(f"; requests are sent to {second.url}")


def test_keeps_using_the_worker_that_responded(serve: Serve) -> None:
    """The state was read from this worker's cluster, so writes must not be sent to a worker of another cluster."""
    first, second = serve([(200, {})]), serve([])
    requests = ConnectClient(HttpService(url=first.url), [first.url, second.url])
    requests.config("c")
    first.close()
    for call in (lambda: requests.config("c"), lambda: requests.stop("c")):
        with pytest.raises((UnreachableError, UnknownOutcomeError), match=first.url):
            call()
    assert second.seen == []


def test_does_not_send_a_write_to_another_worker(serve: Serve, free_port: int) -> None:
    second = serve([])
    url = f"http://127.0.0.1:{free_port}"
    with pytest.raises(UnreachableError):
        ConnectClient(HttpService(url=url), [url, second.url]).delete("c")
    assert second.seen == []


def test_does_not_repeat_a_rejected_request_at_another_worker(serve: Serve) -> None:
    first, second = serve([answer(403, "no")]), serve([])
    with pytest.raises(RejectedError):
        ConnectClient(HttpService(url=first.url), [first.url, second.url]).worker_info()
    assert (len(first.seen), second.seen) == (1, [])


def test_reports_each_worker_when_none_responds(
    free_port: int, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "READ_TIMEOUT_S", 0.2)
    urls = [f"http://127.0.0.1:{port}" for port in (free_port, silent_port)]
    with pytest.raises(UnreachableError) as caught:
        ConnectClient(HttpService(url=urls[0]), urls).worker_info()
    assert [caught.value.message.count(url) for url in urls] == [1, 1]


def test_a_404_page_is_not_a_missing_connector(serve: Serve) -> None:
    """A wrong path or a proxy returns such a page. If it meant "missing", plan would create existing objects."""
    with pytest.raises(UnreachableError, match="is not Kafka Connect"):
        client(serve([(404, b"<html>not here</html>")])).config("c")


STARTING = (404, Page("<h2>HTTP ERROR 404 Not Found</h2>", "Jetty(12.0.34)"))


def test_a_404_page_of_connects_http_server_is_a_starting_worker(serve: Serve) -> None:
    """Until a worker has started, its HTTP server returns this page for every path."""
    server = serve([STARTING])
    with pytest.raises(UnreachableError, match=f"the worker at {server.url} is still starting") as caught:
        client(server).config("c")
    assert caught.value.hint.startswith("run the command again")


def test_reads_from_another_worker_while_one_starts(serve: Serve) -> None:
    first, second = serve([STARTING]), serve([(200, {"version": "4.3.1"})])
    cluster = Connect(url=first.url, workers=[second.url])
    assert ConnectClient(cluster, cluster.addresses).worker_info() == {"version": "4.3.1"}


def test_handled_error_is_not_the_cause(silent_port: int, free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second attempt after a time-out cannot connect, so it did not send a request."""
    monkeypatch.setattr(rest, "WRITE_TIMEOUT_S", 0.2)
    try:
        ConnectClient(HttpService(url=f"http://127.0.0.1:{silent_port}")).delete("c")
    except UnknownOutcomeError:
        with pytest.raises(UnreachableError, match="connection refused"):
            ConnectClient(HttpService(url=f"http://127.0.0.1:{free_port}")).delete("c")


@pytest.mark.parametrize("content", [b"<html>a login page</html>", b""], ids=["html", "empty"])
def test_reports_a_malformed_json_response(serve: Serve, content: bytes) -> None:
    """Such a response comes, for example, from a proxy or another service."""
    server = serve([(200, content)])
    with pytest.raises(OutboxError, match=server.url):
        client(server).config("c")


def test_sends_credentials_in_the_header(serve: Serve) -> None:
    server = serve([(200, {"version": "4.3.1"})])
    service = HttpService(url=server.url, username="me", password=SecretStr("s3cret:x"))
    assert ConnectClient(service).worker_info() == {"version": "4.3.1"}
    assert server.seen[0].authorization == "Basic " + base64.b64encode(b"me:s3cret:x").decode()


def test_does_not_use_credentials_of_netrc(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password other\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server = serve([(200, {})])
    client(server).worker_info()
    assert server.seen[0].authorization is None


# --- writes whose outcome is unknown


WRITES: list[Callable[[ConnectClient], object]] = [
    lambda c: c.create_stopped("c", {}),
    lambda c: c.update_config("c", {}),
    lambda c: c.delete("c"),
    lambda c: c.patch_offsets("c", {}, {}),
]


@pytest.mark.parametrize("write", WRITES, ids=["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("status", [502, 504])
def test_reports_a_write_lost_by_a_proxy_as_uncertain(
    serve: Serve, write: Callable[[ConnectClient], object], status: int
) -> None:
    with pytest.raises(UnknownOutcomeError, match=f"HTTP {status}") as caught:
        write(client(serve([(status, b"")])))
    assert "may still complete the request" in caught.value.hint


def test_reports_failed_offset_changes_as_uncertain(serve: Serve) -> None:
    reason = "Failed to modify offsets for source connector c"
    with pytest.raises(UnknownOutcomeError, match=reason):
        client(serve([(500, {"error_code": 500, "message": reason})])).patch_offsets("c", {}, {})


def test_read_lost_by_a_proxy_is_not_a_write(serve: Serve) -> None:
    with pytest.raises(UnreachableError, match="HTTP 502"):
        client(serve([(502, b"")])).config("c")


@pytest.mark.parametrize("response", [(504, b""), UNKNOWN_OUTCOMES[0]], ids=["proxy", "worker"])
def test_validation_is_not_a_write(serve: Serve, response: tuple[int, object]) -> None:
    """Validation is a PUT request, but does not change state."""
    with pytest.raises(RejectedError) as caught:
        client(serve([response])).validate("c", {"connector.class": "x.Y"})
    assert not isinstance(caught.value, UnknownOutcomeError)


def test_bounds_the_wait_for_an_unresponsive_worker(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read has a short time limit. A write must wait longer than the worker's limit of 90 s."""
    assert rest.READ_TIMEOUT_S <= 15
    assert rest.WRITE_TIMEOUT_S > 90
    monkeypatch.setattr(rest, "READ_TIMEOUT_S", 0.2)
    monkeypatch.setattr(rest, "WRITE_TIMEOUT_S", 0.3)
    unresponsive = ConnectClient(HttpService(url=f"http://127.0.0.1:{silent_port}"))
    location = f"Kafka Connect at http://127.0.0.1:{silent_port}"
    with pytest.raises(UnreachableError) as caught:
        unresponsive.listed_connectors()
    assert caught.value.message == f"{location}: GET /connectors: no response within 0.2 s"
    assert "connect.url" in caught.value.hint
    with pytest.raises(UnknownOutcomeError) as unknown_outcome:
        unresponsive.update_config("c", {"database.password": "s3cret"})
    assert unknown_outcome.value.message == f"{location}: PUT /connectors/c/config: no response within 0.3 s"


def test_a_bounded_client_limits_reads_and_retries(serve: Serve, silent_port: int) -> None:
    """`verify` reports a worker that does not respond within seconds. A validation connects to the database."""
    unresponsive = ConnectClient(HttpService(url=f"http://127.0.0.1:{silent_port}")).bounded(0.1)
    with pytest.raises(UnreachableError, match=r"GET /connectors: no response within 0\.1 s"):
        unresponsive.listed_connectors()
    with pytest.raises(UnreachableError, match=r"/validate: no response within 0\.3 s"):
        unresponsive.validate("c", {"connector.class": "x.Y"})
    with pytest.raises(RebalanceError):
        client(serve([REBALANCES[0]])).bounded(0.1).listed_connectors()


# --- rejected credentials


@pytest.mark.parametrize(
    ("credentials", "hint"),
    [
        ({}, "was sent with no credentials and was rejected; set connect.username and connect.password, or"),
        (
            {"username": "me", "password": SecretStr("s3cret")},
            "sent with basic authentication as 'me' and was rejected; check connect.username and connect.password",
        ),
        (
            {"username": "me"},
            "sent with basic authentication as 'me' without a password and was rejected; check connect.username "
            "and connect.password",
        ),
        ({"token": SecretStr("s3cret")}, "was sent with a bearer token and was rejected; check connect.token"),
    ],
    ids=["none", "basic", "user name only", "bearer"],
)
def test_reports_the_kind_of_rejected_credentials(serve: Serve, credentials: dict[str, Any], hint: str) -> None:
    server = serve([(401, b"<html>who are you</html>")])
    with pytest.raises(UnreachableError) as caught:
        ConnectClient(HttpService(url=server.url, **credentials)).config("c")
    assert caught.value.message == f"Kafka Connect at {server.url}: GET /connectors/c/config: Unauthorized (HTTP 401)"
    assert hint in caught.value.hint
    assert caught.value.hint.endswith(" in the environment file")
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_reports_missing_permissions(serve: Serve) -> None:
    with pytest.raises(RejectedError, match=r"Forbidden \(HTTP 403\)") as caught:
        client(serve([(403, b"")])).stop("c")
    assert "not authorized; set connect.username" in caught.value.hint


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_does_not_follow_redirects(serve: Serve, status: int) -> None:
    """A redirected PUT becomes a GET, whose response would be mistaken for success."""
    target = serve([(200, {})])
    server = serve([(status, Redirect(f"{target.url}/connectors/c/config?token=s3cret"))])
    with pytest.raises(UnreachableError) as caught:
        client(server).update_config("c", {"a": "1"})
    request = f"Kafka Connect at {server.url}: PUT /connectors/c/config"
    assert caught.value.message == f"{request}: redirected to {target.url} (HTTP {status})"
    assert caught.value.hint == f"set connect.url to {target.url}"
    assert (len(server.seen), target.seen) == (1, [])


def test_reports_a_redirect_without_a_target(serve: Serve) -> None:
    with pytest.raises(UnreachableError, match=r"redirected to an unknown address \(HTTP 302\)"):
        client(serve([(302, b"")])).update_config("c", {"a": "1"})
