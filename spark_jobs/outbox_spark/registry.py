"""The schemas of a run: the reader's, and the writer's of every id that occurs. Each is asked for once."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from outbox_kit.avro.inlining import inline
from outbox_spark.errors import SchemaError, UnreachableError
from outbox_spark.model import Registry

REQUEST_SECONDS = 10
# A registry restarts in seconds; a longer outage is for the scheduler's own retry.
_RETRY = Retry(total=3, backoff_factor=0.5, status_forcelist=(502, 503, 504), raise_on_status=False)


class SchemaRegistry:
    """Client of the Confluent REST API: `latest(subject)` and `by_id(id)`, both cached for the run."""

    def __init__(self, registry: Registry) -> None:
        self._url = registry.url.rstrip("/")
        self._session = requests.Session()
        self._session.mount("http://", HTTPAdapter(max_retries=_RETRY))
        self._session.mount("https://", HTTPAdapter(max_retries=_RETRY))
        if registry.username is not None:
            self._session.auth = (registry.username, registry.password or "")
        self._by_id: dict[int, str | None] = {}

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
        schema = self._avro(answer, f"subject {subject}")
        self._by_id[int(answer["id"])] = schema
        return schema

    def by_id(self, schema_id: int) -> str | None:
        """Schema with this id, JSON text; None when the registry does not know the id."""
        if schema_id not in self._by_id:
            answer = self._get(f"/schemas/ids/{schema_id}")
            self._by_id[schema_id] = None if answer is None else self._avro(answer, f"schema id {schema_id}")
        return self._by_id[schema_id]

    def _get(self, path: str) -> dict[str, Any] | None:
        """The JSON answer; None for 404."""
        try:
            response = self._session.get(self._url + path, timeout=REQUEST_SECONDS)
        except requests.RequestException as error:
            message = f"the registry at {self._url} does not answer: {type(error).__name__}"
            raise UnreachableError(message, "check registry.url and that the registry is up") from error
        if response.status_code == HTTPStatus.NOT_FOUND:
            return None
        if response.status_code != HTTPStatus.OK:
            message = f"the registry at {self._url} answered {response.status_code} to GET {path}"
            raise UnreachableError(message, "check registry.url, username and password")
        answer: dict[str, Any] = json.loads(response.text)
        return answer

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
