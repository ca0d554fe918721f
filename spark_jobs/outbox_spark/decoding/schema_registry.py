"""The schemas of a run: the reader's, and the writer's of every id that occurs. Each is asked for once."""

from __future__ import annotations

import json
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from outbox_kit.avro.inlining import inline
from outbox_spark.errors import SchemaError, UnreachableError
from outbox_spark.http_session import explain, open_session, refusal_hint
from outbox_spark.jobs.model import Registry

REQUEST_SECONDS = 10
# A registry restarts in seconds; a longer outage is for the scheduler's own retry.
_RETRY = Retry(total=3, backoff_factor=0.5, status_forcelist=(502, 503, 504), raise_on_status=False)
# Schemas of a subject that its records are expected to have: those of producers that are not updated yet.
_RECENT = 3
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
# What registries answer that know nothing of GUIDs: no such path.
_NO_SUCH_PATH = (HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


class SchemaRegistry:
    """Client of the Confluent REST API. What it has found is kept for the run.

    Raises UnreachableError when the registry does not answer or refuses the credentials, ConfigurationError for
    credentials that no request can be made with.
    """

    def __init__(self, registry: Registry) -> None:
        self._url = registry.url.rstrip("/")
        self._registry = registry
        self._session = open_session(registry)
        self._session.mount("http://", HTTPAdapter(max_retries=_RETRY))
        self._session.mount("https://", HTTPAdapter(max_retries=_RETRY))
        self._by_id: dict[int | str, str | None] = {}
        self._met: set[tuple[str, int]] = set()

    def __enter__(self) -> SchemaRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def latest(self, subject: str) -> str:
        """Newest schema of a subject, JSON text. Raises SchemaError when there is none."""
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if answer is None:
            message = f"the registry at {self._url} has no subject {subject}"
            raise SchemaError(message, "`outbox apply` registers the schemas of a pipeline")
        return self._learnt(answer, f"subject {subject}")

    def version(self, subject: str, version: int) -> str:
        """One version of a subject, JSON text. Raises SchemaError when there is none, with those that there are."""
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
        if answer is None:
            found = self._get(f"/subjects/{quote(subject, safe='')}/versions") or []
            known = ", ".join(str(number) for number in found)
            message = f"subject {subject} has no version {version}; it has: {known or 'none'}"
            raise SchemaError(message, "correct `schema_version` of the materialization")
        return self._learnt(answer, f"version {version} of subject {subject}")

    def recent(self, subject: str) -> dict[int | str, str]:
        """The newest few schemas of a subject, by id, and all that were asked for before; none but usable ones."""
        numbers = self._get(f"/subjects/{quote(subject, safe='')}/versions", missing=_REFUSED) or []
        for number in sorted(numbers)[-_RECENT:]:
            if (subject, number) not in self._met:
                self._met.add((subject, number))
                with suppress(SchemaError):  # not Avro, or incomplete: an error where a record has it
                    self.version(subject, number)
        return {key: schema for key, schema in self._by_id.items() if schema is not None}

    def by_id(self, schema_id: int) -> str | None:
        """Schema with this id, JSON text; None when the registry does not know the id."""
        return self._found(schema_id, f"/schemas/ids/{schema_id}", f"schema id {schema_id}")

    def by_guid(self, guid: str) -> str | None:
        """Schema with this GUID, JSON text; None when the registry does not know it, or knows no GUIDs at all."""
        return self._found(guid, f"/schemas/guids/{guid}", f"schema GUID {guid}", missing=_NO_SUCH_PATH)

    def _found(self, key: int | str, path: str, what: str, missing: tuple[HTTPStatus, ...] = ()) -> str | None:
        if key not in self._by_id:
            answer = self._get(path, missing)
            self._by_id[key] = None if answer is None else self._avro(answer, what)
        return self._by_id[key]

    def _get(self, path: str, missing: tuple[HTTPStatus, ...] = ()) -> Any:  # noqa: ANN401 - any JSON
        """The JSON answer; None for 404 and what else counts as `missing`."""
        try:
            response = self._session.get(self._url + path, timeout=REQUEST_SECONDS)
        except requests.RequestException as error:
            reason, hint = explain(error)
            raise UnreachableError(f"the registry at {self._url} does not answer: {reason}", hint) from error
        if response.status_code in (HTTPStatus.NOT_FOUND, *missing):
            return None
        if response.status_code != HTTPStatus.OK:
            hint = "look at the registry's log, and check registry.url"
            if response.status_code in _REFUSED:
                hint = refusal_hint(response.status_code, self._registry)
            message = f"the registry at {self._url} answered {response.status_code} to GET {path}"
            raise UnreachableError(message, hint)
        try:
            return json.loads(response.text)
        except ValueError as error:
            message = f"the registry at {self._url} did not answer GET {path} with JSON"
            raise UnreachableError(message, "is there a proxy in between? Check registry.url") from error

    def _learnt(self, answer: dict[str, Any], what: str) -> str:
        schema = self._avro(answer, what)
        self._by_id[int(answer["id"])] = schema
        return schema

    def _avro(self, answer: dict[str, Any], what: str) -> str:
        """The schema of an answer, with every type of its references in it. Raises SchemaError."""
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise SchemaError(f"{what} is {answer['schemaType']}", "values of a materialized topic must be Avro")
        texts: dict[str, str] = {}
        self._collect(answer, what, texts)
        return inline(str(answer["schema"]), list(texts.values()))

    def _collect(self, answer: dict[str, Any], what: str, texts: dict[str, str]) -> None:
        """Texts of everything that a schema references, each after those that it references itself."""
        for reference in answer.get("references") or ():
            path = f"/subjects/{quote(reference['subject'], safe='')}/versions/{reference['version']}"
            if path in texts:
                continue
            found = self._get(path)
            if found is None:
                message = f"{what} references {reference['name']}, and the registry has no {path.removeprefix('/')}"
                raise SchemaError(message, "`outbox apply` registers the schemas of a pipeline")
            self._collect(found, what, texts)
            texts[path] = str(found["schema"])
