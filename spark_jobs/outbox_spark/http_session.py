"""HTTP with the credentials of the environment file, and words for what goes wrong. Needs no deploy tool."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path

import requests
from requests.auth import AuthBase

from outbox_spark.errors import ConfigurationError
from outbox_spark.jobs.model import Registry

# By the class names of requests, urllib3 and Python, the most telling first: why, and the next step.
_WORDS: Mapping[str, tuple[str, str]] = {
    "ReadTimeout": ("no answer in time", "is it overloaded, or hanging? See its log"),
    "NameResolutionError": ("the host name is not known", "check registry.url"),
    "ConnectTimeout": ("no connection in time", "check registry.url"),
    "ConnectionRefusedError": ("connection refused", "check registry.url and that the registry is up"),
}


class BearerToken(AuthBase):
    """`Authorization: Bearer ...`."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def open_session(service: Registry) -> requests.Session:
    """A session with the credentials of `service`. Raises ConfigurationError for those that cannot be used."""
    _check(service)
    session = requests.Session()
    # No proxies, no .netrc, no authorities from variables: what counts is in the environment file.
    session.trust_env = False
    if service.token:
        session.auth = BearerToken(service.token)
    elif service.username is not None:
        session.auth = (service.username, service.password or "")
    if service.ca_file:
        session.verify = service.ca_file
    if service.certificate_file:
        session.cert = (service.certificate_file, service.key_file) if service.key_file else service.certificate_file
    return session


def _check(service: Registry) -> None:
    files = {key: getattr(service, key) for key in ("ca_file", "certificate_file", "key_file")}
    for key, path in files.items():
        if path is not None and not Path(path).is_file():
            raise ConfigurationError(f"registry.{key}: the driver finds no file {path}", "correct the environment file")
    if service.token and service.password:
        raise ConfigurationError("registry has a token and a password", "keep one of registry.token and .password")
    if service.key_file and not service.certificate_file:
        message = "registry.key_file without registry.certificate_file"
        raise ConfigurationError(message, "a client certificate needs both, or one file with both in it")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if service.certificate_file:
            # An empty password instead of none: OpenSSL would ask for one at the terminal.
            context.load_cert_chain(service.certificate_file, service.key_file, password="")
        if service.ca_file:
            context.load_verify_locations(service.ca_file)
    except (ssl.SSLError, OSError) as error:
        names = ", ".join(f"registry.{key}" for key, path in files.items() if path)
        message = f"{names}: not usable as PEM, or key and certificate do not belong together ({error})"
        raise ConfigurationError(message, "a key must not be encrypted") from None


def refusal_hint(status: int, service: Registry) -> str:
    """The next step after HTTP 401 or 403, naming what the request was sent with; never the secret itself."""
    kinds = []
    if service.token:
        kinds.append("a bearer token")
    elif service.username is not None:
        kinds.append(f"basic authentication as {service.username!r}")
    if service.certificate_file:
        kinds.append(f"the client certificate {service.certificate_file}")
    sent = " and ".join(kinds) or "no credentials"
    what = "refused" if status == HTTPStatus.UNAUTHORIZED else "known, but not allowed to do this"
    where = "registry.token" if service.token else "registry.username and registry.password, or registry.token"
    return f"sent with {sent}: {what}; look at {where} in the environment file"


def explain(error: requests.RequestException) -> tuple[str, str]:
    """Why there was no answer, and the next step."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            hint = "registry.ca_file must hold the authority that signed it, and registry.url a name that it carries"
            return f"TLS: the server's certificate was not accepted: {cause.verify_message}", hint
        if isinstance(cause, ssl.SSLError):
            hint = "check registry.url; does the server want a client certificate, registry.certificate_file?"
            return f"TLS: {(cause.reason or 'failed').replace('_', ' ').lower()}", hint
    names = {type(cause).__name__ for cause in causes}
    found = next((words for name, words in _WORDS.items() if name in names), None)
    return found or (type(error).__name__, "check registry.url and that the registry is up")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and everything behind it: causes, contexts, and what the libraries carry as an argument."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        found = waiting.pop(0)
        if isinstance(found, BaseException) and id(found) not in seen:
            seen.add(id(found))
            yield found
            waiting += [found.__cause__, found.__context__, getattr(found, "reason", None), *found.args]
