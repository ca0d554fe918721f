"""Credentials and TLS, with a real HTTPS server: requests with credentials, and errors if these are rejected."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from tests.unit.events.tls import Authority, SecureServer, make_authority

from outbox_events.errors import ConfigurationError, OutboxError, UnreachableError
from outbox_kit.connect.client import ConnectClient
from outbox_kit.pipeline import HttpService
from outbox_kit.registry.client import RegistryClient

SECRET = "s3cret:with:colons"
BASIC = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
Secure = Callable[..., SecureServer]


@dataclass(frozen=True)
class Keys:
    """Keys and certificates of servers and clients in these tests."""

    authority: Authority
    other_authority: Authority
    server: Path
    client: Path
    untrusted_client: Path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    authority = make_authority(tmp_path_factory.mktemp("authority"), "authority")
    other_authority = make_authority(tmp_path_factory.mktemp("other"), "other authority")
    server = authority.issue("server", hosts=["127.0.0.1"])
    return Keys(
        authority, other_authority, server, authority.issue("client"), other_authority.issue("untrusted_client")
    )


@pytest.fixture
def secure() -> Iterator[Secure]:
    """Return a function that starts HTTPS servers. They are closed after the test."""
    servers: list[SecureServer] = []

    def start(certificate: Path, **options: Path | str | None) -> SecureServer:
        servers.append(SecureServer(certificate, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def request_connect(service: HttpService) -> object:
    with closing(ConnectClient(service)) as client:
        return list(client.plugin_versions())


def request_registry(service: HttpService) -> object:
    with closing(RegistryClient(service)) as client:
        return client.versions("s")


EACH_CLIENT = pytest.mark.parametrize("send_request", [request_connect, request_registry], ids=["connect", "registry"])
RequestFunction = Callable[[HttpService], object]


@EACH_CLIENT
@pytest.mark.parametrize(
    ("credentials", "authorization"),
    [
        ({}, None),
        ({"username": "me", "password": SecretStr(SECRET)}, BASIC),
        ({"username": "me"}, "Basic " + base64.b64encode(b"me:").decode()),
        ({"token": SecretStr("t0ken")}, "Bearer t0ken"),
    ],
    ids=["none", "basic", "user name only", "bearer"],
)
@pytest.mark.parametrize("mutual", [False, True], ids=["server certificate", "client certificate"])
def test_sends_credentials(
    keys: Keys,
    secure: Secure,
    send_request: RequestFunction,
    credentials: dict[str, Any],
    authorization: str | None,
    mutual: bool,
) -> None:
    server = secure(keys.server, clients=keys.authority.file if mutual else None, authorization=authorization)
    certificate = {"certificate_file": keys.client, "key_file": keys.client.with_suffix(".key")} if mutual else {}
    assert send_request(HttpService(url=server.url, ca_file=keys.authority.file, **credentials, **certificate)) == []
    assert [observed for _, observed in server.seen] == [authorization]


@EACH_CLIENT
def test_accepts_key_and_certificate_in_one_file(
    keys: Keys, secure: Secure, send_request: RequestFunction, tmp_path: Path
) -> None:
    server = secure(keys.server, clients=keys.authority.file)
    both = tmp_path / "both.pem"
    both.write_bytes(keys.client.read_bytes() + keys.client.with_suffix(".key").read_bytes())
    assert send_request(HttpService(url=server.url, ca_file=keys.authority.file, certificate_file=both)) == []


@EACH_CLIENT
@pytest.mark.parametrize("trusted", ["none", "another"])
def test_rejects_an_untrusted_server(keys: Keys, secure: Secure, send_request: RequestFunction, trusted: str) -> None:
    authority = {"ca_file": keys.other_authority.file} if trusted == "another" else {}
    server = secure(keys.server)
    with pytest.raises(UnreachableError, match=r"TLS: .* not trusted: ") as caught:
        send_request(HttpService(url=server.url, **authority))
    assert ".ca_file" in caught.value.hint
    assert server.seen == []


@EACH_CLIENT
def test_rejects_a_certificate_of_another_host(keys: Keys, secure: Secure, send_request: RequestFunction) -> None:
    server = secure(keys.authority.issue("elsewhere", hosts=["connect.example.internal"]))
    with pytest.raises(UnreachableError, match=r"TLS: .* different host: .*127.0.0.1") as caught:
        send_request(HttpService(url=server.url, ca_file=keys.authority.file))
    assert ".url" in caught.value.hint


@EACH_CLIENT
def test_rejects_an_expired_certificate(keys: Keys, secure: Secure, send_request: RequestFunction) -> None:
    server = secure(keys.authority.issue("expired", hosts=["127.0.0.1"], days=-1))
    with pytest.raises(UnreachableError, match="certificate has expired"):
        send_request(HttpService(url=server.url, ca_file=keys.authority.file))


@EACH_CLIENT
@pytest.mark.parametrize("sent", ["none", "untrusted_client"])
def test_reports_a_missing_or_rejected_client_certificate(
    keys: Keys, secure: Secure, send_request: RequestFunction, sent: str
) -> None:
    server = secure(keys.server, clients=keys.authority.file)
    files = {"certificate_file": keys.untrusted_client, "key_file": keys.untrusted_client.with_suffix(".key")}
    with pytest.raises(UnreachableError) as caught:
        send_request(
            HttpService(url=server.url, ca_file=keys.authority.file, **(files if sent == "untrusted_client" else {}))
        )
    # Depending on timing, the client receives the alert of the server or a closed connection.
    alert = "TLS: the server requires a client certificate that it trusts" in caught.value.message
    closed = "the connection was closed without a response" in caught.value.message
    assert alert or closed, caught.value.message
    assert ".certificate_file" in caught.value.hint or sent == "untrusted_client"
    assert server.seen == []


@EACH_CLIENT
def test_reports_a_server_without_tls(serve: Callable[..., Any], keys: Keys, send_request: RequestFunction) -> None:
    server = serve([(200, [])])
    with pytest.raises(UnreachableError, match="TLS: the server does not use TLS") as caught:
        send_request(HttpService(url=server.url.replace("http:", "https:"), ca_file=keys.authority.file))
    assert ".url" in caught.value.hint


@EACH_CLIENT
@pytest.mark.parametrize(
    "credentials",
    [{}, {"username": "me", "password": SecretStr("s3cret")}, {"token": SecretStr("s3cret")}],
    ids=["none", "basic", "bearer"],
)
def test_reports_rejected_credentials(
    keys: Keys, secure: Secure, send_request: RequestFunction, credentials: dict[str, Any]
) -> None:
    server = secure(keys.server, authorization="Bearer other")
    with pytest.raises(OutboxError, match="401") as caught:
        send_request(HttpService(url=server.url, ca_file=keys.authority.file, **credentials))
    assert "sent with" in caught.value.hint
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


# --- errors before the first request


def invalid_settings(keys: Keys, folder: Path) -> list[tuple[dict[str, Any], str]]:
    """Return unusable settings and their error messages."""
    no_pem = folder / "no.pem"
    no_pem.write_text("s3cret", encoding="utf-8")
    locked = keys.authority.issue("locked", password=b"s3cret")
    client, key = keys.client, keys.client.with_suffix(".key")
    return [
        ({"ca_file": folder / "none.pem"}, f"SECTION.ca_file: no file {folder / 'none.pem'}"),
        ({"certificate_file": client, "key_file": folder / "none"}, f"SECTION.key_file: no file {folder / 'none'}"),
        ({"ca_file": no_pem}, "SECTION.ca_file: invalid PEM"),
        ({"certificate_file": client}, "SECTION.certificate_file: invalid PEM"),
        (
            {"certificate_file": keys.untrusted_client, "key_file": key},
            "SECTION.certificate_file, SECTION.key_file: invalid PEM",
        ),
        ({"certificate_file": locked, "key_file": locked.with_suffix(".key")}, "SECTION.key_file: invalid PEM"),
        ({"key_file": key}, "SECTION.key_file is set without SECTION.certificate_file"),
        ({"token": SecretStr("a"), "password": SecretStr("s3cret")}, "are mutually exclusive"),
        ({"token": SecretStr("s3cret\n")}, "SECTION.token contains a character that is not allowed"),
    ]


@pytest.mark.parametrize(("send_request", "section"), [(request_connect, "connect"), (request_registry, "registry")])
@pytest.mark.parametrize("case", range(9))
def test_rejects_invalid_credentials(
    keys: Keys, free_port: int, tmp_path: Path, send_request: RequestFunction, section: str, case: int
) -> None:
    settings, messages = invalid_settings(keys, tmp_path)[case]
    with pytest.raises(ConfigurationError) as caught:
        send_request(HttpService(url=f"https://127.0.0.1:{free_port}", **settings))
    assert messages.replace("SECTION", section) in caught.value.message
    assert "s3cret" not in caught.value.message
