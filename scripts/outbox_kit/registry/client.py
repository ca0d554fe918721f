"""Read and write the schema registry, with one method per endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from outbox_events.errors import RejectedError
from outbox_events.schemas.registry_reader import NOT_FOUND, Reference, RegistryReader, SchemaVersion, subject_path
from outbox_kit.pipeline import HttpService

__all__ = ["Reference", "RegistryClient", "SchemaVersion"]


class RegistryClient(RegistryReader):
    """Client for subjects, versions and compatibility levels. Methods raise UnreachableError and RejectedError."""

    def __init__(self, service: HttpService, *, seconds: float | None = None) -> None:
        super().__init__(service.endpoint(), seconds=seconds)
        self._service = service

    def bounded(self, seconds: float) -> RegistryClient:
        """Return a client for the same registry that sends each request only once, with this time limit."""
        return RegistryClient(self._service, seconds=seconds)

    def compatibility(self, subject: str) -> str | None:
        """Return the compatibility level of a subject, or None if the subject uses the global level."""
        response = self._get(_config_path(subject), f"compatibility of {subject}")
        return None if response is None else str(self._member(response, "compatibilityLevel"))

    def set_compatibility(self, subject: str, level: str) -> None:
        self._request("PUT", _config_path(subject), f"set compatibility of {subject}", {"compatibility": level})

    def is_compatible(self, subject: str, text: str, level: str = "") -> bool:
        """Return whether `text` is compatible with the latest version or, if `level` is transitive, all versions."""
        path = f"/compatibility{subject_path(subject)}/versions{'' if level.endswith('_TRANSITIVE') else '/latest'}"
        response = self._request("POST", path, f"test compatibility with {subject}", _body(text))
        return bool(self._member(response, "is_compatible"))

    def lookup(self, subject: str, text: str) -> int | None:
        """Return the number of the subject's version that has this schema, or None if the schema is not registered."""
        description = f"look up a schema of {subject}"
        response = self._request("POST", subject_path(subject), description, _body(text), NOT_FOUND)
        return None if response is None else int(self._member(response, "version"))

    def register(self, subject: str, text: str, references: Sequence[Reference] = ()) -> None:
        self._request("POST", f"{subject_path(subject)}/versions", f"register {subject}", _body(text, references))

    def delete(self, subject: str) -> None:
        """Delete every version of a subject. This is a soft delete, so schema ids in records can still be resolved."""
        self._request("DELETE", subject_path(subject), f"delete {subject}", missing_status=NOT_FOUND)

    def _member(self, response: Any, name: str) -> Any:  # noqa: ANN401 - JSON
        if not isinstance(response, dict) or response.get(name) is None:
            raise RejectedError(f"registry at {self.url}: the response does not contain the field {name}")
        return response[name]


def _config_path(subject: str) -> str:
    return f"/config/{quote(subject, safe='')}"


def _body(text: str, references: Sequence[Reference] = ()) -> dict[str, Any]:
    return {"schema": text, "schemaType": "AVRO", "references": [asdict(entry) for entry in references]}
