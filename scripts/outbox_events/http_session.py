"""Open HTTP sessions with the credentials in the environment file, and explain why requests failed.

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
from requests.auth import HTTPBasicAuth

from outbox_events.errors import ConfigurationError

AUTHENTICATION_FAILED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
REDIRECTS = range(300, 400)
# Host and port of a URL: the part between `//` and the path, without user info.
_ADDRESS = re.compile(r"https?://(\[[^\]@/]+\]|[^\s/?#@:\[\]]+)(:\d+)?([/?#]|$)")
_FILE_KEYS = ("ca_file", "certificate_file", "key_file")
# OpenSSL's names for the TLS alerts that a server sends if the client certificate is missing or not accepted.
_CERTIFICATE_ALERT = re.compile(
    r"alert (certificate required|handshake failure|bad certificate|unknown ca|certificate unknown"
    r"|certificate expired|access denied|unsupported certificate|decrypt error)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class HttpEndpoint:
    """Base URL of an HTTP service, and the credentials for it. Files are in PEM format."""

    url: str
    username: str | None = None
    """User name for basic authentication. It is sent with an empty password if `password` is not set."""
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """Bearer token. It is mutually exclusive with `password`."""
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True)
class Failure:
    """The reason why a request received no response or was redirected, and a hint on how to correct it."""

    reason: str
    hint: str
    maybe_sent: bool = False
    """Whether the request might have reached the server."""


# Reasons, keyed by the class name of an error's cause. The first entry that matches one of the causes is used.
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
    """Session that uses the credentials of `endpoint`. Messages name keys in `section` of the environment file.

    Raises ConfigurationError if a file is missing or if the credentials cannot be used together.
    """

    def __init__(self, endpoint: HttpEndpoint, section: str) -> None:
        super().__init__()
        self._endpoint, self._section = endpoint, section
        self._check_credentials()
        self.trust_env = False  # ignore .netrc and the environment variables for proxies and CA files
        if endpoint.token:
            self.headers["Authorization"] = f"Bearer {endpoint.token}"
        elif endpoint.username:
            # Pass the credentials as UTF-8 bytes, because requests would encode text as Latin-1.
            self.auth = HTTPBasicAuth(endpoint.username.encode(), (endpoint.password or "").encode())
        if endpoint.ca_file:
            self.verify = endpoint.ca_file
        if endpoint.certificate_file:
            certificate, key = endpoint.certificate_file, endpoint.key_file
            self.cert = (certificate, key) if key else certificate

    def _check_credentials(self) -> None:
        endpoint, section = self._endpoint, self._section
        if has_user_info(endpoint.url):
            hint = f"set {section}.username and {section}.password instead"
            raise ConfigurationError(f"{section}.url contains a user name or password", hint)
        files = {f"{section}.{key}": path for key in _FILE_KEYS if (path := getattr(endpoint, key))}
        for key, path in files.items():
            if not Path(path).is_file():
                raise ConfigurationError(f"{key}: no file {path}", f"correct {key} in the environment file")
        if endpoint.token and not (endpoint.token.isascii() and endpoint.token.isprintable()):
            message = f"{section}.token contains a character that is not allowed in an HTTP header"
            raise ConfigurationError(message, "remove line breaks, such as a line break at the end of the token file")
        if endpoint.token and endpoint.password:
            message = f"{section}.token and {section}.password are mutually exclusive"
            raise ConfigurationError(message, f"remove {section}.token or {section}.password from the environment file")
        if endpoint.key_file and not endpoint.certificate_file:
            message = f"{section}.key_file is set without {section}.certificate_file"
            raise ConfigurationError(message, f"set {section}.certificate_file, or remove {section}.key_file")
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if endpoint.certificate_file:
                # Without this argument OpenSSL would prompt for the password of an encrypted key.
                context.load_cert_chain(endpoint.certificate_file, endpoint.key_file, password="")
            if endpoint.ca_file:
                context.load_verify_locations(endpoint.ca_file)
        except (ssl.SSLError, OSError) as error:
            message = f"{', '.join(files)}: invalid PEM file, or the key does not belong to the certificate ({error})"
            raise ConfigurationError(message, "use PEM files and the unencrypted key of the certificate") from None

    def explain_rejection(self, status: int) -> str:
        """Return the hint for an HTTP 401 or 403 response. It states which kind of credentials was sent."""
        endpoint, section = self._endpoint, self._section
        if endpoint.token:
            sent, remedy = ["a bearer token"], f"check {section}.token"
        elif endpoint.username:
            password = "" if endpoint.password else " without a password"
            sent = [f"basic authentication as {endpoint.username!r}{password}"]
            remedy = f"check {section}.username and {section}.password"
        else:
            sent, remedy = [], f"set {section}.username and {section}.password, or {section}.token"
        if endpoint.certificate_file:
            sent.append(f"the client certificate {endpoint.certificate_file}")
        rejected = status == HTTPStatus.UNAUTHORIZED
        result = "rejected" if rejected else "not authorized"
        alternative = "" if rejected else ", or grant the permission in the service"
        request = f"the request was sent with {' and '.join(sent) or 'no credentials'} and was {result}"
        return f"{request}; {remedy} in the environment file{alternative}"

    def explain_redirect(self, response: requests.Response, path: str) -> Failure:
        """Return the failure of a redirected request for `path`. The hint contains the URL to configure.

        Redirects are not followed, because the target would receive the credentials and a PUT can become a GET. The
        hint omits the target's user info and query, because they can contain secrets.
        """
        key = f"{self._section}.url"
        if response.next is None or response.next.url is None:
            return Failure("redirected to an unknown address", f"set {key} to an address that does not redirect")
        target, path = urlsplit(response.next.url), path.partition("?")[0]
        origin = f"{target.scheme}://{target.netloc.rpartition('@')[2]}"
        hint = f"set {key} to the URL of the service at {origin}, unless {origin} is a login page"
        if target.path.endswith(path):
            hint = f"set {key} to {origin}{target.path.removesuffix(path)}"
        return Failure(f"redirected to {origin}", hint)

    def explain(self, error: BaseException, *, seconds: float) -> Failure:
        """Return the failure of a request that raised `error`. `seconds` is the read timeout of the request."""
        causes = list(_causes(error))
        for cause in causes:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return self._explain_certificate(cause)
            if isinstance(cause, ssl.SSLError) and type(cause).__name__ not in _CLOSED_REASONS:
                return self._explain_tls(cause)
        class_names = {type(cause).__name__ for cause in causes}
        hint = f"check {self._section}.url in the environment file"
        if class_names.intersection(_TIMEOUT_ERRORS):
            return Failure(f"no response within {seconds:g} s", f"{hint}, and the service's log", maybe_sent=True)
        for reasons in (_CLOSED_REASONS, _NOT_SENT_REASONS):
            for name, reason in reasons.items():
                if name in class_names:
                    messages = [cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror]
                    # The operating system's message, for example "No route to host".
                    detail = f": {messages[0]}" if messages and name == "NewConnectionError" else ""
                    hint = f"{hint}, and {self._availability_hint()}"
                    return Failure(reason + detail, hint, maybe_sent=reasons is _CLOSED_REASONS)
        return Failure(type(error).__name__, f"{hint}, and check that the service is running", maybe_sent=True)

    def _availability_hint(self) -> str:
        """Return the hint for a broken connection. With TLS 1.3, a missing client certificate can be the cause."""
        hint = "check that the service is running"
        if self._endpoint.url.startswith("https:") and not self._endpoint.certificate_file:
            return f"{hint}; if it requires a client certificate, set {self._section}.certificate_file"
        return hint

    def _explain_certificate(self, error: ssl.SSLCertVerificationError) -> Failure:
        reason = error.verify_message or str(error)
        if "ostname mismatch" in reason or "IP address mismatch" in reason:
            hint = f"set {self._section}.url to a host name that the server's certificate contains"
            return Failure(f"TLS: the certificate is for a different host: {reason}", hint)
        hint = f"set {self._section}.ca_file to the CA of the server's certificate, or renew an expired certificate"
        return Failure(f"TLS: the server's certificate is not trusted: {reason}", hint)

    def _explain_tls(self, error: ssl.SSLError) -> Failure:
        """Return the failure for a TLS error. Only a certificate alert proves that the server read no request."""
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if _CERTIFICATE_ALERT.search(reason):
            hint = f"set {self._section}.certificate_file to a certificate of an authority that the server trusts"
            return Failure(f"TLS: the server requires a client certificate that it trusts ({reason})", hint)
        if "wrong version number" in reason or "record layer failure" in reason or "http request" in reason:
            hint = f"use http instead of https in {self._section}.url, or change the port to the port for https"
            return Failure(f"TLS: the server does not use TLS on this port ({reason})", hint, maybe_sent=True)
        hint = f"check {self._section}.url and the TLS settings of the server"
        return Failure(f"TLS: {reason}", hint, maybe_sent=True)


def has_user_info(url: str) -> bool:
    """Return whether an HTTP URL contains a user name or password, including passwords with unescaped characters."""
    return "@" in url and _ADDRESS.match(url) is None


def error_message(response: requests.Response) -> str:
    """Return the field `message` of an error response from Connect or the registry, or '' if the field is missing."""
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def error_code(response: requests.Response) -> int:
    """Return the field `error_code` of an error response from the schema registry, or 0 if the field is missing."""
    try:
        return int(response.json()["error_code"])
    except (ValueError, KeyError, TypeError):
        return 0


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, including causes that HTTP libraries pass as an argument or as `reason`.

    `__context__` is ignored, because it can be an unrelated error that was being handled when the request was sent.
    """
    visited: set[int] = set()
    pending: list[object] = [error]
    while pending:
        cause = pending.pop(0)
        if isinstance(cause, BaseException) and id(cause) not in visited:
            visited.add(id(cause))
            yield cause
            pending += [cause.__cause__, getattr(cause, "reason", None), *cause.args]
