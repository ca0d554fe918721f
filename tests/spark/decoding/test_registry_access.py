"""The registry's credentials, versions and GUIDs, over HTTP and TLS."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import SecretStr
from tests.unit.events.tls import make_authority

from outbox_events.errors import ConfigurationError, RejectedError, UnreachableError
from outbox_events.http_session import HttpEndpoint
from outbox_kit.pipeline import HttpService
from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.errors import SchemaError

GUID = "89791762-2336-186f-9674-299b90a8e2ad"
RESPONSES: dict[str, object] = {
    "/subjects/t-value/versions": [1, 3],
    "/subjects/t-value/versions/3": {"id": 7, "schema": '{"type":"int"}'},
    f"/schemas/guids/{GUID}": {"schema": '{"type":"long"}', "guid": GUID},
}


@dataclass
class Server:
    """Respond with RESPONSES to requests whose header Authorization is `authorization`."""

    authorization: str | None = None
    status: int = 401
    """Status of the response to other requests."""
    missing: int = 404
    text: str | None = None
    """Replaces the response body."""
    requested_paths: list[str] = field(default_factory=list)

    @contextmanager
    def running(self, context: ssl.SSLContext | None = None) -> Iterator[str]:
        handler = type("Handler", (Handler,), {"server_state": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class Handler(BaseHTTPRequestHandler):
    server_state: Server

    def do_GET(self) -> None:
        state = self.server_state
        state.requested_paths.append(self.path)
        actual = RESPONSES.get(self.path)
        status = 200 if actual is not None else state.missing
        if state.authorization is not None and self.headers.get("Authorization") != state.authorization:
            status = state.status
        if actual is None and status == 404:
            actual = {"error_code": 40402, "message": "Version not found"}
        body = (state.text if state.text is not None else json.dumps(actual)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_sends_a_bearer_token() -> None:
    with (
        Server(authorization="Bearer t0ken").running() as url,
        SchemaRegistry(HttpEndpoint(url, token="t0ken")) as registry,
    ):
        assert registry.version("t-value", 3) == '{"type":"int"}'


def test_sends_basic_authentication() -> None:
    with (
        Server(authorization="Basic dTpw").running() as url,
        SchemaRegistry(HttpEndpoint(url, "u", "p")) as registry,
    ):
        assert registry.version("t-value", 3) == '{"type":"int"}'


@pytest.mark.parametrize(
    ("status", "registry", "fragments"),
    [
        (401, HttpEndpoint("", token="s3cret"), ["a bearer token and was rejected", "registry.token"]),
        (
            403,
            HttpEndpoint("", "u", "s3cret"),
            ["basic authentication as 'u' and was not authorized", "registry.password"],
        ),
        (401, HttpEndpoint(""), ["no credentials and was rejected", "registry.username"]),
    ],
)
def test_rejection_names_the_credentials_sent(status: int, registry: HttpEndpoint, fragments: list[str]) -> None:
    with Server(authorization="other", status=status).running() as url:
        service = HttpEndpoint(url, registry.username, registry.password, registry.token)
        with SchemaRegistry(service) as client, pytest.raises(RejectedError, match=f"HTTP {status}") as caught:
            client.latest("t-value")
    assert all(fragment in caught.value.hint for fragment in fragments)
    assert "s3cret" not in caught.value.hint + caught.value.message + repr(service)


def test_reports_a_missing_version_with_the_existing_ones() -> None:
    with Server().running() as url, SchemaRegistry(HttpEndpoint(url)) as registry:
        with pytest.raises(SchemaError, match=r"t-value has no version 2; .*: 1, 3") as caught:
            registry.version("t-value", 2)
        with pytest.raises(SchemaError, match=r"other-value has no version 1; .*: none"):
            registry.version("other-value", 1)
    assert "schema_version" in caught.value.hint


@pytest.mark.parametrize("missing", [404, 405, 501])
def test_reads_guids_where_the_registry_supports_them(missing: int) -> None:
    server = Server(missing=missing)
    other = GUID.replace("8", "9")
    with server.running() as url, SchemaRegistry(HttpEndpoint(url)) as registry:
        assert [registry.schema(guid) for guid in (GUID, GUID, other, other)] == ['{"type":"long"}'] * 2 + [None] * 2
    assert server.requested_paths == [f"/schemas/guids/{GUID}", f"/schemas/guids/{other}"]


def test_reports_a_response_that_is_not_json() -> None:
    with (
        Server(text="<html>").running() as url,
        SchemaRegistry(HttpEndpoint(url)) as registry,
        pytest.raises(UnreachableError, match=r"subject t-value version 3: .*JSON"),
    ):
        registry.version("t-value", 3)


def test_uses_ca_and_client_certificate_of_the_environment(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "ca")
    host, client = authority.issue("host", hosts=["127.0.0.1"]), authority.issue("client")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(host, host.with_suffix(".key"))
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    with Server().running(context) as url:
        files = {"certificate_file": str(client), "key_file": str(client.with_suffix(".key"))}
        with SchemaRegistry(HttpEndpoint(url, ca_file=str(authority.file), **files)) as registry:
            assert registry.version("t-value", 3) == '{"type":"int"}'
        with (
            SchemaRegistry(HttpEndpoint(url)) as registry,
            pytest.raises(UnreachableError, match="TLS: the server's certificate is not trusted") as caught,
        ):
            registry.version("t-value", 3)
    assert "registry.ca_file" in caught.value.hint


@pytest.mark.parametrize(
    ("registry", "message"),
    [
        (HttpEndpoint("http://r", ca_file="/nowhere/ca.pem"), r"registry\.ca_file: no file /nowhere"),
        (
            HttpEndpoint("http://r", password="p", token="t"),
            "registry.token and registry.password are mutually exclusive",
        ),
        (
            HttpEndpoint("http://r", key_file=__file__),
            r"registry\.key_file is set without registry\.certificate_file",
        ),
        (HttpEndpoint("http://r", ca_file=__file__), r"registry\.ca_file: invalid PEM"),
    ],
)
def test_rejects_unusable_credentials(registry: HttpEndpoint, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        SchemaRegistry(registry)
    assert caught.value.hint


def test_passes_all_registry_settings_to_the_job() -> None:
    service = HttpService(
        url="https://r",
        username="u",
        password=SecretStr("p"),
        token=SecretStr("t"),
        ca_file=Path("/ca.pem"),
        certificate_file=Path("/c.pem"),
        key_file=Path("/k.pem"),
    )
    assert service.endpoint() == HttpEndpoint("https://r", "u", "p", "t", "/ca.pem", "/c.pem", "/k.pem")
    assert HttpService(url="http://r").endpoint() == HttpEndpoint("http://r")
