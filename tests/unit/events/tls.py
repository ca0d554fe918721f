"""Certificates and an HTTPS server for tests: real TLS on the loopback interface."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """A certificate authority in a folder."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    file: Path

    def issue(self, name: str, *, hosts: Sequence[str] = (), days: int = 1, password: bytes | None = None) -> Path:
        """Write a certificate and its key as NAME.pem and NAME.key next to the authority's files. Return its path."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self.name, key, days)
        # Python 3.13 requires the key identifiers by default.
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        names = [_host(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        file = self.file.with_name(f"{name}.pem")
        file.write_bytes(certificate.public_bytes(Encoding.PEM))
        encryption = BestAvailableEncryption(password) if password else NoEncryption()
        content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        file.with_suffix(".key").write_bytes(content)
        return file


def make_authority(folder: Path, name: str) -> Authority:
    """Create a self-signed certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = _builder(subject, subject, key, 1).add_extension(x509.BasicConstraints(True, None), critical=True)
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    file = folder / f"{name}.pem"
    file.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    return Authority(subject, key, file)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: x509.Name, issuer: x509.Name, key: Any, days: int) -> x509.CertificateBuilder:  # noqa: ANN401
    """Valid from two days ago until `days` from now."""
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - 2 * DAY).not_valid_after(now + days * DAY)


class _Handler(BaseHTTPRequestHandler):
    """Responds with `{}` to requests with the expected Authorization header."""

    expected: ClassVar[str | None]
    seen: ClassVar[list[tuple[str, str | None]]]

    def do_GET(self) -> None:
        authorization = self.headers.get("Authorization")
        self.seen.append((self.path, authorization))
        self.send_response(200 if authorization == self.expected else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    """HTTP server that performs the TLS handshake in the thread of each request and does not print clients' errors."""

    context: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        with self.context.wrap_socket(request, server_side=True) as tls_socket:
            super().finish_request(tls_socket, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors, because some tests cause failed handshakes."""


class SecureServer:
    """HTTPS server on a free port. With `clients`, it requires a client certificate of this authority."""

    def __init__(self, certificate: Path, *, clients: Path | None = None, authorization: str | None = None) -> None:
        self.seen: list[tuple[str, str | None]] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(clients)
        handler = type("Handler", (_Handler,), {"expected": authorization, "seen": self.seen})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._server.context = context
        self.port = int(self._server.server_address[1])
        self.url = f"https://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        """Stop responding."""
        self._server.shutdown()
        self._server.server_close()
