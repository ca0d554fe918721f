"""Requests and errors of the registry client, with an HTTP server that has scripted responses."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from pydantic import SecretStr
from tests.unit.support import Redirect, Script, ScriptedServer

from outbox_events.errors import RejectedError, UnreachableError
from outbox_events.schemas import registry_reader
from outbox_kit.pipeline import HttpService
from outbox_kit.registry.client import RegistryClient, SchemaVersion

NO_SUBJECT = (404, {"error_code": 40401, "message": "Subject 'a' not found."})
VERSION = {"subject": "a", "version": 2, "id": 7, "schema": '"string"'}
Serve = Callable[[Script], ScriptedServer]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without backoff."""
    monkeypatch.setattr(registry_reader, "RETRY", registry_reader.RETRY.new(backoff_factor=0))


def client(server: ScriptedServer) -> RegistryClient:
    return RegistryClient(HttpService(url=server.url))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda registry: registry.latest("a"), None),
        (lambda registry: registry.version("a", 3), None),
        (lambda registry: registry.versions("a"), []),
        (lambda registry: registry.compatibility("a"), None),
    ],
    ids=["latest", "version", "versions", "compatibility"],
)
def test_returns_none_for_missing_objects(
    serve: Serve, call: Callable[[RegistryClient], object], expected: object
) -> None:
    assert call(client(serve([NO_SUBJECT]))) == expected


def test_rejects_a_write_to_a_missing_object(serve: Serve) -> None:
    with pytest.raises(RejectedError, match=r"set compatibility of a: Subject 'a' not found\. \(HTTP 404\)"):
        client(serve([NO_SUBJECT])).set_compatibility("a", "FULL")


def test_reads_existing_objects(serve: Serve) -> None:
    assert client(serve([(200, VERSION)])).latest("a") == SchemaVersion(2, 7, '"string"')
    assert client(serve([(200, [3, 1, 2])])).versions("a") == [1, 2, 3]
    assert client(serve([(200, {"compatibilityLevel": "FULL"})])).compatibility("a") == "FULL"
    assert client(serve([(200, {"is_compatible": True})])).is_compatible("a", '"string"') is True
    assert client(serve([(200, {"is_compatible": False})])).is_compatible("a", '"string"') is False


def test_does_not_cache_versions(serve: Serve) -> None:
    actual = client(serve([(200, VERSION), NO_SUBJECT]))
    assert [actual.version("a", 2), actual.version("a", 2)] == [SchemaVersion(2, 7, '"string"'), None]


def test_does_not_cache_the_latest_version(serve: Serve) -> None:
    server = serve([(200, VERSION), (200, {**VERSION, "version": 3, "id": 8})])
    actual = client(server)
    assert [actual.latest("a"), actual.latest("a")] == [
        SchemaVersion(2, 7, '"string"'),
        SchemaVersion(3, 8, '"string"'),
    ]


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "Unauthorized"), (409, "Schema being registered is incompatible"), (422, "Invalid schema")],
)
def test_rejection_reports_url_request_and_reason(serve: Serve, status: int, message: str) -> None:
    server = serve([(status, {"error_code": status, "message": message})])
    with pytest.raises(RejectedError) as caught:
        client(server).register("a", '"string"')
    assert caught.value.message == f"registry at {server.url}: register a: {message} (HTTP {status})"


@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_registry_has_the_right_address(serve: Serve, status: int) -> None:
    with pytest.raises(RejectedError) as caught:
        client(serve([(status, b"")])).latest("a")
    assert "registry.url" not in caught.value.hint
    assert "again" in caught.value.hint


def test_server_error_is_not_a_missing_subject(serve: Serve) -> None:
    server = serve([(500, {"error_code": 50001, "message": "Error in the backend"})])
    with pytest.raises(RejectedError, match=r"(?m)subject a: Error in the backend \(HTTP 500\)$"):
        client(server).latest("a")
    assert len(server.seen) > 1, "a server error is retried"


def test_retries_a_transient_server_error(serve: Serve) -> None:
    server = serve([(503, {"error_code": 50301, "message": "starting"}), (200, VERSION)])
    assert client(server).latest("a") == SchemaVersion(2, 7, '"string"')


def test_reports_a_malformed_json_response(serve: Serve) -> None:
    server = serve([(200, b"<html>a login page</html>")])
    with pytest.raises((RejectedError, UnreachableError), match=server.url):
        client(server).latest("a")


def test_reports_a_response_without_an_id(serve: Serve) -> None:
    server = serve([(200, {"subject": "a", "version": 2})])
    with pytest.raises(RejectedError, match="subject a: the response has no"):
        client(server).latest("a")


def test_names_an_unreachable_registry(free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}"
    with pytest.raises(UnreachableError) as caught:
        RegistryClient(HttpService(url=url)).latest("a")
    assert caught.value.message.startswith(f"cannot reach the schema registry at {url}: ")
    assert "registry.url" in caught.value.hint


def test_a_bounded_client_sends_each_request_once(serve: Serve) -> None:
    server = serve([(503, b""), (200, VERSION)])
    with pytest.raises(RejectedError, match="HTTP 503"):
        client(server).bounded(1).latest("a")
    assert len(server.seen) == 1


def test_names_the_request_that_has_no_response(silent_port: int) -> None:
    url = f"http://127.0.0.1:{silent_port}"
    with pytest.raises(UnreachableError) as caught:
        RegistryClient(HttpService(url=url)).bounded(0.1).latest("a")
    assert caught.value.message == f"registry at {url}: subject a: no response within 0.1 s"


def test_sends_credentials_in_the_header_only(serve: Serve) -> None:
    server = serve([(403, {"error_code": 403, "message": "Forbidden"})])
    service = HttpService(url=server.url, username="me", password=SecretStr("s3cret:x"))
    with pytest.raises(RejectedError) as caught:
        RegistryClient(service).latest("a")
    assert server.seen[0].authorization == "Basic " + base64.b64encode(b"me:s3cret:x").decode()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_does_not_follow_redirects(serve: Serve, status: int) -> None:
    """The target would receive the credentials."""
    target = serve([(200, VERSION)])
    location = f"{target.url.replace('//', '//user:s3cret@')}/v7/subjects/a/versions/latest?token=s3cret"
    server = serve([(status, Redirect(location))])
    service = HttpService(url=server.url, username="me", password=SecretStr("s3cret"))
    with pytest.raises(UnreachableError) as caught:
        RegistryClient(service).latest("a")
    expected = f"registry at {server.url}: subject a: redirected to {target.url} (HTTP {status})"
    assert (caught.value.message, caught.value.hint) == (expected, f"set registry.url to {target.url}/v7")
    assert (len(server.seen), target.seen) == (1, [])


def test_reports_a_redirect_to_a_login_page(serve: Serve) -> None:
    server = serve([(302, Redirect("https://login.example.internal/start?state=s3cret"))])
    with pytest.raises(
        UnreachableError, match=r"redirected to https://login\.example\.internal \(HTTP 302\)"
    ) as caught:
        client(server).versions("a")
    assert "registry.url" in caught.value.hint
    assert "s3cret" not in caught.value.message + caught.value.hint


def test_sends_no_header_without_credentials(serve: Serve) -> None:
    server = serve([NO_SUBJECT])
    client(server).latest("a")
    assert server.seen[0].authorization is None
