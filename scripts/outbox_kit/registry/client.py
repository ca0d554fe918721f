"""The schema registry's Confluent API, one method per call, no policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from outbox_kit import http
from outbox_kit.errors import RejectedError, UnreachableError
from outbox_kit.pipeline import HttpService

SECTION = "registry"
REQUEST_TIMEOUT_S = 20
NOT_FOUND = 404
REFUSED = (401, 403)

T = TypeVar("T")


@dataclass(frozen=True)
class Reference:
    """A type that a schema uses by name, and the version of the subject that defines it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class SchemaVersion:
    """One version of a subject as the registry has it; types of `references` stand in the text by name."""

    version: int
    id: int
    text: str
    references: tuple[Reference, ...] = ()


class RegistryClient:
    """Subjects, versions and compatibility. Raises UnreachableError and RejectedError."""

    def __init__(self, service: HttpService) -> None:
        self.url = service.url
        self._service = service
        http.refuse_wrong_credentials(service, SECTION)
        settings: dict[str, Any] = {"url": service.url, "timeout": REQUEST_TIMEOUT_S, "max.retries": 2}
        if service.username and service.password:
            settings["basic.auth.user.info"] = f"{service.username}:{service.password.get_secret_value()}"
        if service.token:
            settings["bearer.auth.credentials.source"] = "STATIC_TOKEN"
            settings["bearer.auth.token"] = service.token.get_secret_value()
            settings["bearer.auth.logical.cluster"] = ""  # asked for by the client, of use to Confluent's cloud only
        files = {"ca": service.ca_file, "certificate": service.certificate_file, "key": service.key_file}
        settings |= {f"ssl.{name}.location": str(path) for name, path in files.items() if path}
        self._client = SchemaRegistryClient(settings)

    def close(self) -> None:
        self._client.close()

    def forget(self) -> None:
        """Ask the registry anew from here on: the client keeps every version that it has seen."""
        self._client.clear_caches()  # type: ignore[no-untyped-call]

    def latest(self, subject: str) -> SchemaVersion | None:
        """Newest version of a subject, None where there is no such subject."""
        return self._found(lambda: self._version(subject, "latest"), f"subject {subject}")

    def version(self, subject: str, version: int) -> SchemaVersion | None:
        """One version of a subject."""
        return self._found(lambda: self._version(subject, version), f"subject {subject} version {version}")

    def versions(self, subject: str) -> list[int]:
        """Version numbers of a subject, ascending; empty where there is none."""
        found = self._found(lambda: self._client.get_versions(subject), f"versions of {subject}")
        return sorted(found or [])

    def compatibility(self, subject: str) -> str | None:
        """Compatibility rule in force for the subject, None where the registry has none."""
        return self._found(lambda: self._client.get_compatibility(subject), f"compatibility of {subject}")

    def set_compatibility(self, subject: str, level: str) -> None:
        self._call(lambda: self._client.set_compatibility(subject, level), f"set compatibility of {subject}")

    def is_compatible(self, subject: str, text: str, *, every_version: bool = False) -> bool:
        """Whether the registry would accept `text` as the next version under the subject's rule.

        A transitive rule is only held when `every_version` is asked about, not the latest alone.
        """
        ask = self._client.test_compatibility_all_versions if every_version else self._client.test_compatibility
        return self._call(lambda: bool(ask(subject, _schema(text))), f"test compatibility with {subject}")

    def lookup(self, subject: str, text: str, references: Sequence[Reference] = ()) -> int | None:
        """Version under which the subject has this schema, None where it has not."""
        found = self._found(
            lambda: self._client.lookup_schema(subject, _schema(text, references)), f"look up a schema of {subject}"
        )
        return found.version if found else None

    def register(self, subject: str, text: str, references: Sequence[Reference] = ()) -> None:
        """Register `text` as the newest version."""
        self._call(
            lambda: self._client.register_schema(subject, _schema(text, references)),
            f"register {subject}",
        )

    def delete(self, subject: str) -> None:
        """Delete every version of a subject; ids in old records can still be resolved (a soft deletion)."""
        self._call(lambda: self._client.delete_subject(subject), f"delete {subject}")

    def _version(self, subject: str, version: int | str) -> SchemaVersion:
        found = self._client.get_version(subject, version)  # type: ignore[arg-type]
        if found.version is None or found.schema_id is None or found.schema is None:
            raise RejectedError(f"registry at {self.url}: subject {subject}: an answer without version, id or schema")
        references = tuple(
            Reference(str(entry.name), str(entry.subject), int(entry.version or 0))
            for entry in found.schema.references or []
        )
        return SchemaVersion(found.version, found.schema_id, str(found.schema.schema_str), references)

    def _found(self, call: Callable[[], T], what: str) -> T | None:
        try:
            return self._call(call, what)
        except RejectedError as error:
            cause = error.__cause__
            if isinstance(cause, SchemaRegistryError) and cause.http_status_code == NOT_FOUND:
                return None
            raise

    def _call(self, call: Callable[[], T], what: str) -> T:
        try:
            return call()
        except SchemaRegistryError as error:
            message = f"registry at {self.url}: {what}: {error.error_message} (HTTP {error.http_status_code})"
            hint = ""
            if error.http_status_code in REFUSED:
                hint = http.explain_refusal(error.http_status_code, self._service, SECTION)
            raise RejectedError(message, hint) from error
        except RejectedError:
            raise
        except Exception as error:
            # The client lets its HTTP library's errors through, and which one that is has changed before.
            failure = http.explain(error, self._service, SECTION, seconds=REQUEST_TIMEOUT_S)
            message = f"cannot reach the schema registry at {self.url}: {failure.reason}"
            raise UnreachableError(message, failure.hint) from error


def _schema(text: str, references: Sequence[Reference] = ()) -> Schema:
    named = [SchemaReference(entry.name, entry.subject, entry.version) for entry in references]
    return Schema(text, schema_type="AVRO", references=named)
