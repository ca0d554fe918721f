"""The schema registry's Confluent API, one method per call, no policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from outbox_kit.errors import RejectedError, UnreachableError
from outbox_kit.pipeline import HttpService

REQUEST_TIMEOUT_S = 20
NOT_FOUND = 404

T = TypeVar("T")


@dataclass(frozen=True)
class SchemaVersion:
    """One version of a subject as the registry has it."""

    version: int
    id: int
    text: str


class RegistryClient:
    """Subjects, versions and compatibility. Raises UnreachableError and RejectedError."""

    def __init__(self, service: HttpService) -> None:
        self._url = service.url
        settings: dict[str, Any] = {"url": service.url, "timeout": REQUEST_TIMEOUT_S, "max.retries": 2}
        if service.username and service.password:
            settings["basic.auth.user.info"] = f"{service.username}:{service.password.get_secret_value()}"
        self._client = SchemaRegistryClient(settings)

    def close(self) -> None:
        self._client.close()

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

    def is_compatible(self, subject: str, text: str) -> bool:
        """Whether the registry would accept `text` as the next version under the subject's rule."""
        schema = Schema(text, schema_type="AVRO")
        return self._call(
            lambda: bool(self._client.test_compatibility(subject, schema)),
            f"test compatibility with {subject}",
        )

    def register(self, subject: str, text: str) -> None:
        """Register `text` as the newest version."""
        self._call(
            lambda: self._client.register_schema(subject, Schema(text, schema_type="AVRO")),
            f"register {subject}",
        )

    def _version(self, subject: str, version: int | str) -> SchemaVersion:
        found = self._client.get_version(subject, version)  # type: ignore[arg-type]
        if found.version is None or found.schema_id is None or found.schema is None:
            raise RejectedError(f"registry at {self._url}: subject {subject}: an answer without version, id or schema")
        return SchemaVersion(found.version, found.schema_id, str(found.schema.schema_str))

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
            message = f"registry at {self._url}: {what}: {error.error_message} (HTTP {error.http_status_code})"
            raise RejectedError(message) from error
        except RejectedError:
            raise
        except Exception as error:
            # The client lets its HTTP library's errors through, and which one that is has changed before.
            raise UnreachableError(
                f"cannot reach the schema registry at {self._url}: {type(error).__name__}",
                "check registry.url in the environment file",
            ) from error
