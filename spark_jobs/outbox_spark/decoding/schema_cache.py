"""Read schemas from the registry and cache them during a run."""

from __future__ import annotations

from contextlib import suppress

from outbox_events.http_session import AUTHENTICATION_FAILED, HttpEndpoint
from outbox_events.schemas.registry_reader import NOT_FOUND, MissingReferenceError, RegistryReader, SchemaVersion
from outbox_spark.errors import SchemaError

# Number of versions, newest first, to request before records are read. Some producers may use an earlier version.
_RECENT_VERSION_COUNT = 3


class SchemaRegistry:
    """Schema registry with a cache for the run; schemas are JSON text with every referenced type inlined.

    Raises UnreachableError if no valid response arrives, RejectedError for an error response, SchemaError for a schema
    that is not Avro or has a missing reference, and ConfigurationError for credentials that cannot be used.
    """

    def __init__(self, registry: HttpEndpoint, reader: RegistryReader | None = None) -> None:
        """`reader` is a client of the same registry, which stays open."""
        self._is_reader_kept = reader is not None
        self._reader = reader or RegistryReader(registry)
        self._schemas: dict[int | str, str | None] = {}
        """Schemas by id or GUID. The value is None if the registry does not have the schema."""
        self._requested_versions: set[tuple[str, int]] = set()

    def __enter__(self) -> SchemaRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_reader_kept:
            self._reader.close()

    def latest(self, subject: str) -> str:
        """Return the latest schema of a subject. Raises SchemaError if the subject does not exist."""
        version = self._reader.latest(subject)
        if version is None:
            message = f"the registry at {self._reader.url} has no subject {subject}"
            raise SchemaError(message, "run `outbox apply` to register the schemas of the pipeline")
        self._requested_versions.add((subject, version.version))
        return self._cache(version, f"subject {subject}")

    def version(self, subject: str, number: int) -> str:
        """Return the schema of a version. If it is missing, raise a SchemaError that lists the existing versions."""
        version = self._reader.version(subject, number)
        if version is None:
            versions = ", ".join(map(str, self._reader.versions(subject))) or "none"
            message = f"subject {subject} has no version {number}; its versions are: {versions}"
            raise SchemaError(message, "correct `schema_version` of the materialization")
        return self._cache(version, f"version {number} of subject {subject}")

    def recent(self, subject: str) -> dict[int | str, str]:
        """Return the recent schemas of a subject and all cached schemas, by id or GUID; omit non-Avro schemas."""
        return self._versions(subject, _RECENT_VERSION_COUNT)

    def all_versions(self, subject: str) -> dict[int | str, str]:
        """Return the schemas of all versions of a subject and all cached schemas, in the form of `recent`."""
        return self._versions(subject, 0)

    def _versions(self, subject: str, count: int) -> dict[int | str, str]:
        """Return the schemas of the newest `count` versions (all versions if `count` is 0) and all cached schemas."""
        numbers = self._reader.versions(subject, missing_status=(*NOT_FOUND, *AUTHENTICATION_FAILED))
        for number in numbers[-count:]:
            if (subject, number) not in self._requested_versions:
                self._requested_versions.add((subject, number))
                with suppress(SchemaError):  # reported only if a record has this schema
                    self.version(subject, number)
        return {key: schema for key, schema in self._schemas.items() if schema is not None}

    def schema(self, key: int | str) -> str | None:
        """Return the schema with this id or GUID; None if the registry does not have it or does not support GUIDs."""
        if key not in self._schemas:
            version = self._reader.by_id(key) if isinstance(key, int) else self._reader.by_guid(key)
            description = f"schema {'id' if isinstance(key, int) else 'GUID'} {key}"
            self._schemas[key] = None if version is None else self._inlined(version, description)
        return self._schemas[key]

    def _cache(self, version: SchemaVersion, description: str) -> str:
        schema = self._schemas[version.id] = self._inlined(version, description)
        if version.guid:
            self._schemas[version.guid] = schema
        return schema

    def _inlined(self, version: SchemaVersion, description: str) -> str:
        """Return the schema as JSON text with every referenced type inlined."""
        if version.schema_type != "AVRO":
            message = f"{description} is {version.schema_type}, not Avro"
            raise SchemaError(message, "use an Avro schema; other schema types are not supported")
        try:
            return self._reader.inlined(version, description)
        except MissingReferenceError as error:
            raise SchemaError(error.message, error.hint) from error
