"""HTTP sessions with the credentials of the environment file, and the words for what goes wrong on the way.

Basic authentication, a bearer token, an own certificate authority and a client certificate; each may be left out.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import requests
from requests.auth import AuthBase

from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline import HttpService

FILES = ("ca_file", "certificate_file", "key_file")
# What OpenSSL calls the alerts of a server that wants a client certificate, and of one that does not like the one sent.
CERTIFICATE_ALERT = re.compile(
    r"alert (certificate required|handshake failure|bad certificate|unknown ca|certificate unknown"
    r"|certificate expired|access denied|unsupported certificate|decrypt error)",
    re.IGNORECASE,
)


class BearerToken(AuthBase):
    """`Authorization: Bearer ...`."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def open_session(service: HttpService, section: str) -> requests.Session:
    """A session with the credentials of `service`; `section` is where they stand in the environment file.

    Raises ConfigurationError for a file that is not there, and for credentials that do not go together.
    """
    refuse_wrong_credentials(service, section)
    session = requests.Session()
    # No proxies, no .netrc, no authorities from variables: what counts is in the environment file.
    session.trust_env = False
    if service.token:
        session.auth = BearerToken(service.token.get_secret_value())
    elif service.username and service.password:
        session.auth = (service.username, service.password.get_secret_value())
    if service.ca_file:
        session.verify = str(service.ca_file)
    if service.certificate_file:
        certificate = str(service.certificate_file)
        session.cert = (certificate, str(service.key_file)) if service.key_file else certificate
    return session


def refuse_wrong_credentials(service: HttpService, section: str) -> None:
    """Credentials that no request could be made with. Raises ConfigurationError."""
    for key in FILES:
        path: Path | None = getattr(service, key)
        if path is not None and not path.is_file():
            raise ConfigurationError(f"{section}.{key}: no file {path}", "correct the environment file")
    if service.token and service.password:
        raise ConfigurationError(f"{section} has a token and a password", f"keep one of {section}.token and .password")
    if service.key_file and not service.certificate_file:
        message = f"{section}.key_file without {section}.certificate_file"
        raise ConfigurationError(message, "a client certificate needs both, or one file with both in it")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if service.certificate_file:
            # An empty password instead of none: OpenSSL would ask for one at the terminal.
            context.load_cert_chain(service.certificate_file, service.key_file, password="")
        if service.ca_file:
            context.load_verify_locations(service.ca_file)
    except (ssl.SSLError, OSError) as error:
        names = ", ".join(f"{section}.{key}" for key in FILES if getattr(service, key))
        message = f"{names}: not usable as PEM, or key and certificate do not belong together ({error})"
        raise ConfigurationError(message, "a key must not be encrypted") from None


def credentials(service: HttpService) -> str:
    """The kind of credentials that requests carry, in words; never the credentials."""
    kinds = []
    if service.token:
        kinds.append("a bearer token")
    elif service.username and service.password:
        kinds.append(f"basic authentication as {service.username!r}")
    if service.certificate_file:
        kinds.append(f"the client certificate {service.certificate_file}")
    return " and ".join(kinds) or "no credentials"


def where_to_look(service: HttpService, section: str) -> str:
    """The keys of the environment file that decide on the credentials."""
    if service.token:
        return f"look at {section}.token"
    if service.username and service.password:
        return f"look at {section}.username and {section}.password"
    return f"set {section}.username and {section}.password, or {section}.token"


def explain_refusal(status: int, service: HttpService, section: str) -> str:
    """The next step after HTTP 401 or 403, naming what the request was sent with."""
    what = "refused" if status == requests.codes.unauthorized else "known, but not allowed to do this"
    return f"sent with {credentials(service)}: {what}; {where_to_look(service, section)} in the environment file"


@dataclass(frozen=True)
class Failure:
    """Why a request got no answer, the next step, and whether the server may have read the request."""

    reason: str
    hint: str
    sent: bool = False


# By the class names of requests, urllib3, httpx and Python, the most telling first.
NOT_SENT = {
    "NameResolutionError": "the host name is not known",
    "gaierror": "the host name is not known",
    "ConnectTimeout": "no connection within the time-out",
    "ConnectTimeoutError": "no connection within the time-out",
    "ConnectionRefusedError": "connection refused",
    "NewConnectionError": "no connection",
}
CUT = {
    "RemoteDisconnected": "the connection was cut without an answer",
    "RemoteProtocolError": "the connection was cut without an answer",
    "ConnectionResetError": "the connection was cut without an answer",
    "BrokenPipeError": "the connection was cut without an answer",
    "SSLEOFError": "the connection was cut without an answer",
    "SSLZeroReturnError": "the connection was cut without an answer",
    "IncompleteRead": "the connection was cut in the middle of an answer",
}
CUT_IN_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
TIMED_OUT = ("ReadTimeout", "ReadTimeoutError")


def explain(error: BaseException, service: HttpService, section: str, *, seconds: float) -> Failure:
    """What kept a request from being answered, for requests and for httpx alike; nothing of the request is repeated.

    `seconds` is the read time-out that was in force.
    """
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _explain_certificate(cause, section)
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, CUT_IN_TLS):
            return _explain_tls(cause, section)
    names = {type(cause).__name__ for cause in causes}
    check = f"check {section}.url in the environment file"
    if names.intersection(TIMED_OUT):
        return Failure(
            f"no answer within {seconds:g} s", f"is it overloaded, or hanging? See its log; {check}", sent=True
        )
    for known in (CUT, NOT_SENT):
        for name, words in known.items():
            if name in names:
                reason = words + _of_the_system(causes) if name == "NewConnectionError" else words
                return Failure(reason, f"{check}; {_suspect(service, section)}", sent=known is CUT)
    return Failure(type(error).__name__, f"{check}; is the service up?", sent=True)


def _of_the_system(causes: list[BaseException]) -> str:
    """For instance: No route to host."""
    words = [cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror]
    return f": {words[0]}" if words else ""


def _suspect(service: HttpService, section: str) -> str:
    """With TLS 1.3 a server often hangs up before its word about the client certificate has been read."""
    if service.url.startswith("https:") and not service.certificate_file:
        return f"is the service up? If it wants a client certificate: {section}.certificate_file"
    return "is the service up?"


def _explain_certificate(error: ssl.SSLCertVerificationError, section: str) -> Failure:
    reason = error.verify_message or str(error)
    if "ostname mismatch" in reason or "IP address mismatch" in reason:
        hint = f"{section}.url must use a name that the server's certificate carries"
        return Failure(f"TLS: the certificate is of another host: {reason}", hint)
    hint = f"{section}.ca_file must hold the authority that signed the server's certificate"
    return Failure(f"TLS: the server's certificate was not accepted: {reason}", hint)


def _explain_tls(error: ssl.SSLError, section: str) -> Failure:
    """Only a refused certificate is known to come before the request is read; the rest may come after it."""
    words = (error.reason or str(error)).replace("_", " ").lower()
    if CERTIFICATE_ALERT.search(words):
        hint = f"check {section}.certificate_file and {section}.key_file: is the server's authority their signer?"
        return Failure(f"TLS: the server wants a client certificate that it accepts ({words})", hint)
    if "wrong version number" in words or "record layer failure" in words or "http request" in words:
        hint = f"check {section}.url: http instead of https?"
        return Failure(f"TLS: the server does not speak it ({words})", hint, sent=True)
    return Failure(f"TLS: {words}", f"check {section}.url and the TLS settings of the server", sent=True)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and everything behind it: causes, and what HTTP libraries carry as an argument.

    Not `__context__`: an error that somebody was handling when this request was made is none of its causes.
    """
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        found = waiting.pop(0)
        if not isinstance(found, BaseException) or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        waiting += [found.__cause__, getattr(found, "reason", None), *found.args]
