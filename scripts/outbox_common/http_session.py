"""HTTP sessions with the credentials of the environment file, and error messages for failed requests.

Supports basic authentication, a bearer token, a certificate authority file and a client certificate.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from outbox_common.errors import ConfigurationError

AUTHENTICATION_FAILED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
REDIRECTS = range(300, 400)
_FILE_KEYS = ("ca_file", "certificate_file", "key_file")
# OpenSSL's names of the TLS alerts that a server sends when the client certificate is missing or not accepted.
_CERTIFICATE_ALERT = re.compile(
    r"alert (certificate required|handshake failure|bad certificate|unknown ca|certificate unknown"
    r"|certificate expired|access denied|unsupported certificate|decrypt error)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class HttpEndpoint:
    """Base URL and credentials of an HTTP service; files are PEM."""

    url: str
    username: str | None = None
    """User name of basic authentication; sent with an empty password if `password` is not set."""
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """Bearer token, instead of a password."""
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True)
class Failure:
    """Reason why the service did not respond to a request, and a hint."""

    reason: str
    hint: str
    sent: bool = False
    """Whether the request may have reached the server."""


@dataclass(frozen=True)
class BearerToken(AuthBase):
    """`Authorization: Bearer ...`."""

    token: str = field(repr=False)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self.token}"
        return request


# Reasons by class name of the errors of requests and urllib3, with the most specific class first.
_NOT_SENT_REASONS = {
    **dict.fromkeys(("NameResolutionError", "gaierror"), "the host name cannot be resolved"),
    **dict.fromkeys(("ConnectTimeout", "ConnectTimeoutError"), "connection timed out"),
    "ConnectionRefusedError": "connection refused",
    "NewConnectionError": "no connection",
}
_CLOSED_REASONS = {
    **dict.fromkeys(
        ("RemoteDisconnected", "ConnectionResetError", "BrokenPipeError", "SSLEOFError", "SSLZeroReturnError"),
        "the connection was closed without a response",
    ),
    "IncompleteRead": "the connection was closed before the response was complete",
}
_TIMEOUT_ERRORS = ("ReadTimeout", "ReadTimeoutError")


class HttpSession(requests.Session):
    """Session with the credentials of `endpoint`; messages name the keys of `section` in the environment file.

    Raises ConfigurationError for a missing file and for credentials that cannot be used together.
    """

    def __init__(self, endpoint: HttpEndpoint, section: str) -> None:
        super().__init__()
        self._endpoint, self._section = endpoint, section
        self._check_credentials()
        self.trust_env = False  # no proxies, .netrc or CA files from environment variables
        if endpoint.token:
            self.auth = BearerToken(endpoint.token)
        elif endpoint.username:
            # Passed as UTF-8 bytes, because requests would encode text as Latin-1.
            self.auth = HTTPBasicAuth(endpoint.username.encode(), (endpoint.password or "").encode())
        if endpoint.ca_file:
            self.verify = endpoint.ca_file
        if endpoint.certificate_file:
            certificate, key = endpoint.certificate_file, endpoint.key_file
            self.cert = (certificate, key) if key else certificate

    def _check_credentials(self) -> None:
        endpoint, section = self._endpoint, self._section
        files = {f"{section}.{key}": path for key in _FILE_KEYS if (path := getattr(endpoint, key))}
        for key, path in files.items():
            if not Path(path).is_file():
                raise ConfigurationError(f"{key}: no file {path}", "correct the environment file")
        if endpoint.token and endpoint.password:
            message = f"{section}.token and {section}.password are mutually exclusive"
            raise ConfigurationError(message, "remove one of them from the environment file")
        if endpoint.key_file and not endpoint.certificate_file:
            message = f"{section}.key_file is set without {section}.certificate_file"
            raise ConfigurationError(message, f"set {section}.certificate_file, or remove {section}.key_file")
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if endpoint.certificate_file:
                # Without a password OpenSSL would prompt for one on the terminal.
                context.load_cert_chain(endpoint.certificate_file, endpoint.key_file, password="")
            if endpoint.ca_file:
                context.load_verify_locations(endpoint.ca_file)
        except (ssl.SSLError, OSError) as error:
            message = f"{', '.join(files)}: invalid PEM file, or key and certificate do not match ({error})"
            raise ConfigurationError(message, "use PEM files with an unencrypted key") from None

    def explain_rejection(self, status: int) -> str:
        """Return the hint for HTTP 401 or 403, with the kind of credentials that were sent."""
        endpoint, section = self._endpoint, self._section
        credentials = [
            "a bearer token" if endpoint.token else "",
            f"basic authentication as {endpoint.username!r}{'' if endpoint.password else ' without a password'}"
            if endpoint.username and not endpoint.token
            else "",
            f"the client certificate {endpoint.certificate_file}" if endpoint.certificate_file else "",
        ]
        sent = " and ".join(filter(None, credentials)) or "no credentials"
        result = "rejected" if status == HTTPStatus.UNAUTHORIZED else "authenticated, but not authorized"
        if endpoint.token:
            keys = f"check {section}.token"
        elif endpoint.username:
            keys = f"check {section}.username and {section}.password"
        else:
            keys = f"set {section}.username and {section}.password, or {section}.token"
        return f"the request was sent with {sent} and was {result}; {keys} in the environment file"

    def explain_redirect(self, response: requests.Response, path: str) -> Failure:
        """Return the failure of a redirected request for `path`: the target as reason, the URL to set as hint.

        Redirects are not followed: the target would receive the credentials, and a redirected PUT becomes a GET. User
        info and query of the target are omitted, because they can contain secrets.
        """
        key = f"{self._section}.url"
        if response.next is None or response.next.url is None:
            return Failure("redirected to an unknown address", f"set {key} to the final address")
        target, path = urlsplit(response.next.url), path.partition("?")[0]
        origin = f"{target.scheme}://{target.netloc.rpartition('@')[2]}"
        hint = f"set {key} to the URL of the service at {origin}, unless that is a login page"
        if target.path.endswith(path):
            hint = f"set {key} to {origin}{target.path.removesuffix(path)}"
        return Failure(f"redirected to {origin}", hint)

    def explain(self, error: BaseException, *, seconds: float) -> Failure:
        """Return why a request has no response; `seconds` is its read timeout."""
        causes = list(_causes(error))
        for cause in causes:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return self._explain_certificate(cause)
            if isinstance(cause, ssl.SSLError) and type(cause).__name__ not in _CLOSED_REASONS:
                return self._explain_tls(cause)
        names = {type(cause).__name__ for cause in causes}
        check = f"check {self._section}.url in the environment file"
        if names.intersection(_TIMEOUT_ERRORS):
            return Failure(f"no response within {seconds:g} s", f"{check}, and check the service's log", sent=True)
        for reasons in (_CLOSED_REASONS, _NOT_SENT_REASONS):
            for name, reason in reasons.items():
                if name in names:
                    messages = [cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror]
                    # Message of the operating system, for example "No route to host".
                    detail = f": {messages[0]}" if messages and name == "NewConnectionError" else ""
                    return Failure(
                        reason + detail, f"{check}, and {self._availability_hint()}", sent=reasons is _CLOSED_REASONS
                    )
        return Failure(type(error).__name__, f"{check}, and check that the service is running", sent=True)

    def _availability_hint(self) -> str:
        """Return the hint for a closed connection. With TLS 1.3 the cause can be a missing client certificate."""
        check = "check that the service is running"
        if self._endpoint.url.startswith("https:") and not self._endpoint.certificate_file:
            return f"{check}; if it requires a client certificate, set {self._section}.certificate_file"
        return check

    def _explain_certificate(self, error: ssl.SSLCertVerificationError) -> Failure:
        reason = error.verify_message or str(error)
        if "ostname mismatch" in reason or "IP address mismatch" in reason:
            hint = f"set {self._section}.url to a host name that the server's certificate contains"
            return Failure(f"TLS: the certificate is for a different host: {reason}", hint)
        hint = f"set {self._section}.ca_file to the certificate of the authority that signed the server's certificate"
        return Failure(f"TLS: the server's certificate is not trusted: {reason}", hint)

    def _explain_tls(self, error: ssl.SSLError) -> Failure:
        """Explain a TLS error. Only a certificate alert proves that the server has not read the request."""
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if _CERTIFICATE_ALERT.search(reason):
            hint = f"set {self._section}.certificate_file to a certificate of an authority that the server trusts"
            return Failure(f"TLS: the server requires a client certificate that it trusts ({reason})", hint)
        if "wrong version number" in reason or "record layer failure" in reason or "http request" in reason:
            hint = f"check {self._section}.url: the service may require http instead of https"
            return Failure(f"TLS: the server does not use TLS on this port ({reason})", hint, sent=True)
        return Failure(f"TLS: {reason}", f"check {self._section}.url and the TLS settings of the server", sent=True)


def error_message(response: requests.Response) -> str:
    """Return `message` of an error response of Kafka Connect or the registry; empty if it has another format."""
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes. HTTP libraries pass some causes as arguments of an error.

    `__context__` is ignored, because it can be an unrelated error that was being handled during the request.
    """
    visited: set[int] = set()
    pending: list[object] = [error]
    while pending:
        cause = pending.pop(0)
        if isinstance(cause, BaseException) and id(cause) not in visited:
            visited.add(id(cause))
            yield cause
            pending += [cause.__cause__, getattr(cause, "reason", None), *cause.args]
