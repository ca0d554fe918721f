"""Client for the Confluent schema registry API, with the read requests that outbox-kit and the Spark jobs share."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from outbox_events.errors import RejectedError, UnreachableError
from outbox_events.http_session import (
    AUTHENTICATION_FAILED,
    REDIRECTS,
    HttpEndpoint,
    HttpSession,
    error_code,
    error_message,
)
from outbox_events.schemas.avro_schema import inline

SECTION = "registry"  # section of the environment file
REQUEST_TIMEOUT_S = 20
TEMPORARY_STATUS = (429, 500, 502, 503, 504)
RETRY = Retry(
    total=2,
    read=0,  # a read timeout is not retried
    backoff_factor=0.5,
    status_forcelist=TEMPORARY_STATUS,
    allowed_methods=None,  # retry all methods: every request of this API can be repeated
    raise_on_status=False,
    respect_retry_after_header=False,
)
TEMPORARY_HINT = "see the log of the registry and of the proxies before it, then run the command again"
NOT_FOUND = (HTTPStatus.NOT_FOUND,)
PATH_HINT = "check the URL of the registry: some registries need a path, such as /apis/ccompat/v7"
# Confluent Cloud returns GUIDs of subject versions only in responses to requests with this header.
_HEADERS = {"Confluent-Accept-Unknown-Properties": "true"}
# Error codes of the Confluent API for a missing subject, version or schema. Other servers do not return them.
_ERROR_CODES = range(40400, 40500)
# HTTP status codes of a registry that does not support GUIDs or does not have the GUID.
_NO_GUID_STATUS = (*NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


@dataclass(frozen=True)
class Reference:
    """A type that a schema references by name, and the subject version that defines the type."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class SchemaVersion:
    """A schema in the registry. Its `text` refers to the types of `references` by name."""

    version: int
    """Version number. It is 0 if the schema was requested by id or GUID."""
    id: int
    """Schema id. It is 0 if the schema was requested by GUID."""
    text: str
    references: tuple[Reference, ...] = ()
    schema_type: str = "AVRO"
    guid: str = ""
    """GUID, or '' if the response contains no GUID. Only some registries support GUIDs."""


class MissingReferenceError(RejectedError):
    """A schema references a subject version that does not exist in the registry."""


class RegistryReader:
    """Reads subjects, versions and schemas without caching them.

    The constructor raises ConfigurationError for unusable credentials. Methods raise UnreachableError if the registry
    does not return JSON, and RejectedError for an error response or a response without the expected fields.
    """

    def __init__(self, endpoint: HttpEndpoint, *, seconds: float | None = None) -> None:
        """`seconds` limits each request and disables retries."""
        self.url = endpoint.url.rstrip("/")
        self._timeout_s = REQUEST_TIMEOUT_S if seconds is None else seconds
        self._session = HttpSession(endpoint, SECTION)
        self._session.headers.update(_HEADERS)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=RETRY if seconds is None else 0))

    def close(self) -> None:
        self._session.close()

    def latest(self, subject: str) -> SchemaVersion | None:
        """Return a subject's latest version, or None if the subject does not exist."""
        path, description = f"{subject_path(subject)}/versions/latest", f"subject {subject}"
        return self._parsed(self._get(path, description), description)

    def version(self, subject: str, version: int) -> SchemaVersion | None:
        """Return one version of a subject, or None if this version does not exist."""
        path, description = f"{subject_path(subject)}/versions/{version}", f"subject {subject} version {version}"
        return self._parsed(self._get(path, description), description, version=version)

    def versions(self, subject: str, missing_status: Collection[int] = NOT_FOUND) -> list[int]:
        """Return a subject's version numbers in ascending order, or [] for an HTTP status in `missing_status`."""
        return sorted(self._get(f"{subject_path(subject)}/versions", f"versions of {subject}", missing_status) or [])

    def by_id(self, schema_id: int) -> SchemaVersion | None:
        """Return the schema with this id, or None if no such schema exists."""
        description = f"schema id {schema_id}"
        return self._parsed(self._get(f"/schemas/ids/{schema_id}", description), description, version=0, id=schema_id)

    def by_guid(self, guid: str) -> SchemaVersion | None:
        """Return the schema with this GUID, or None if it does not exist or the registry does not support GUIDs."""
        description = f"schema GUID {guid}"
        response = self._get(f"/schemas/guids/{guid}", description, _NO_GUID_STATUS)
        return self._parsed(response, description, version=0, id=0)

    def inlined(self, schema: SchemaVersion, description: str) -> str:
        """Return a schema's text with referenced types inlined. MissingReferenceError contains `description`."""
        texts: dict[tuple[str, int], str] = {}
        self._collect_references(schema, description, texts)
        return inline(schema.text, list(texts.values()))

    def _collect_references(self, schema: SchemaVersion, description: str, texts: dict[tuple[str, int], str]) -> None:
        """Add the texts of all referenced types to `texts`, keyed by subject and version, in dependency order."""
        for reference in schema.references:
            key = (reference.subject, reference.version)
            if key in texts:
                continue
            referenced_version = self.version(*key)
            if referenced_version is None:
                missing = f"version {reference.version} of subject {reference.subject}"
                message = f"{description} references {reference.name}, but the registry has no {missing}"
                raise MissingReferenceError(message, f"restore {missing} in the registry")
            self._collect_references(referenced_version, description, texts)
            texts[key] = referenced_version.text

    def _parsed(self, response: Any, description: str, **defaults: int) -> SchemaVersion | None:  # noqa: ANN401 - JSON
        if response is None:
            return None
        try:
            fields = {**response, **defaults}
            entries = fields.get("references") or ()
            references = tuple(Reference(entry["name"], entry["subject"], int(entry["version"])) for entry in entries)
            schema_type = str(fields.get("schemaType", "AVRO"))
            version, schema_id = int(fields["version"]), int(fields["id"])
            guid = str(fields.get("guid") or "").lower()
            return SchemaVersion(version, schema_id, str(fields["schema"]), references, schema_type, guid)
        except (KeyError, TypeError, ValueError):
            message = f"registry at {self.url}: {description}: the response has no version, id or schema"
            raise RejectedError(message, "set registry.url to the URL of a Confluent-compatible API") from None

    def _get(self, path: str, description: str, missing_status: Collection[int] = NOT_FOUND) -> Any:  # noqa: ANN401 - JSON
        return self._request("GET", path, description, missing_status=missing_status)

    def _request(
        self, method: str, path: str, description: str, body: object = None, missing_status: Collection[int] = ()
    ) -> Any:  # noqa: ANN401 - JSON
        """Send a request. Return the JSON of the response, or None for an HTTP status in `missing_status`."""
        url, place = self.url + path, f"registry at {self.url}: {description}"
        try:
            response = self._session.request(method, url, json=body, timeout=self._timeout_s, allow_redirects=False)
        except requests.RequestException as error:
            failure = self._session.explain(error, seconds=self._timeout_s)
            subject = place if failure.maybe_sent else f"cannot reach the schema registry at {self.url}"
            raise UnreachableError(f"{subject}: {failure.reason}", failure.hint) from error
        status = response.status_code
        if status in missing_status:
            is_other = status == HTTPStatus.NOT_FOUND and error_code(response) not in _ERROR_CODES
            if is_other and missing_status != _NO_GUID_STATUS:
                raise UnreachableError(f"{place}: a server without this API responded (HTTP {status})", PATH_HINT)
            return None
        if status in REDIRECTS:
            failure = self._session.explain_redirect(response, path)
            raise UnreachableError(f"{place}: {failure.reason} (HTTP {status})", failure.hint)
        if status != HTTPStatus.OK:
            hint = TEMPORARY_HINT if status in TEMPORARY_STATUS else ""
            hint = self._session.explain_rejection(status) if status in AUTHENTICATION_FAILED else hint
            message = f"{error_message(response) or response.reason} (HTTP {status})"
            raise RejectedError(f"{place}: {message}", hint)
        try:
            return json.loads(response.text)
        except ValueError as error:
            hint = "check registry.url, and whether a proxy responded instead of the registry"
            raise UnreachableError(f"{place}: the response is not JSON", hint) from error


def subject_path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"
