"""Define AvroValues, which decodes record values with the schemas in a registry, for `Event.value`."""

from __future__ import annotations

import io
import json
import threading
from copy import deepcopy
from pathlib import Path
from typing import Any

import fastavro
from fastavro.read import SchemaResolutionError

from outbox_events.contract.wire_format import PREFIX, schema_id
from outbox_events.errors import ConfigurationError, RejectedError, UnreachableError
from outbox_events.http_session import HttpEndpoint
from outbox_events.receiving.event import Event, InvalidRecordError
from outbox_events.schemas.avro_defaults import Schema, parse_with_decoded_defaults
from outbox_events.schemas.registry_reader import MissingReferenceError, RegistryReader

RESOLUTION_HINT = "use the writer's types in reader_schema, and set a default for fields that the writer does not have"


class AvroValues:
    """Decodes values in Confluent's wire format with the schema that the id in the value identifies.

    With `reader_schema`, each value is read with this schema, regardless of the version that its writer used, so a
    service sees new fields only when its own schema changes. Dates, timestamps, decimals and UUIDs, also those of
    defaults, are decoded to fastavro's types. Thread-safe.
    """

    def __init__(
        self,
        registry: str | HttpEndpoint,
        *,
        reader_schema: dict[str, Any] | str | Path | None = None,
        seconds: float | None = None,
    ) -> None:
        """`registry` is a URL or an HttpEndpoint. `reader_schema` is parsed JSON, JSON text or a Path.

        `seconds` limits each request to the registry. Raises ConfigurationError.
        """
        self._registry = RegistryReader(
            HttpEndpoint(registry) if isinstance(registry, str) else registry, seconds=seconds
        )
        self._reader_schema = None if reader_schema is None else _parsed_reader_schema(reader_schema)
        # fastavro returns the default of the schema itself, and the caller can change a value.
        self._shares_defaults = _has_mutable_default(self._reader_schema)
        self._writer_schemas: dict[int, Schema] = {}
        self._lock = threading.Lock()  # only one thread at a time may use the HTTP session

    def __call__(self, event: Event) -> Any:  # noqa: ANN401 - any Avro value
        """Return the decoded value.

        Raises InvalidRecordError if the value cannot be decoded and a retry cannot help, and UnreachableError if the
        schema is not cached and the registry did not return it.
        """
        found_id = schema_id(event.raw_value)
        if found_id is None or event.raw_value is None:
            raise InvalidRecordError(f"value of record {event.place} is not in Confluent's wire format")
        body = io.BytesIO(event.raw_value)
        body.seek(PREFIX.size)
        schema = self._writer_schemas.get(found_id) or self._fetched(found_id, event.place)
        try:
            value = fastavro.schemaless_reader(body, schema, self._reader_schema)
            if self._shares_defaults:
                value = deepcopy(value)
        except Exception as error:  # for damaged bytes, fastavro raises many classes, with payload in the text
            reason = f"cannot be decoded with schema id {found_id} ({type(error).__name__})"
            fields = self._unresolved_fields(event.raw_value, schema, error)
            message = f"value of record {event.place} {reason}" + (f": {', '.join(fields)}" if fields else "")
            hint = RESOLUTION_HINT if isinstance(error, SchemaResolutionError) else ""
            raise InvalidRecordError(message, hint) from None
        if body.tell() != len(event.raw_value):
            raise InvalidRecordError(f"value of record {event.place} has bytes after the body of schema id {found_id}")
        return value

    def close(self) -> None:
        """Close the connections to the registry."""
        self._registry.close()

    def _fetched(self, wanted_id: int, place: str) -> Schema:
        with self._lock:
            if wanted_id not in self._writer_schemas:
                self._writer_schemas[wanted_id] = self._request(wanted_id, place)
        return self._writer_schemas[wanted_id]

    def _request(self, wanted_id: int, place: str) -> Schema:
        description, hint = f"schema id {wanted_id} of record {place}", f"check the registry at {self._registry.url}"
        try:
            found = self._registry.by_id(wanted_id)
        except RejectedError as error:  # such as HTTP 401 or 503, which an event cannot cause
            raise UnreachableError(error.message, error.hint) from error
        if found is None:
            raise InvalidRecordError(f"{description} is not in the registry", hint)
        if found.schema_type != "AVRO":
            raise InvalidRecordError(f"{description} is a schema of type {found.schema_type}, not AVRO", hint)
        try:
            return _parsed(json.loads(self._registry.inlined(found, description)))
        except MissingReferenceError as error:
            raise InvalidRecordError(error.message, error.hint) from None
        except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
            raise InvalidRecordError(f"{description} is not a valid Avro schema: {error}", hint) from None

    def _unresolved_fields(self, value: bytes, schema: Schema, error: Exception) -> list[str]:
        """Return the fields of reader_schema that cause a schema resolution error. The error does not name them."""
        if not isinstance(error, SchemaResolutionError) or not isinstance(self._reader_schema, dict):
            return []
        names = []
        for field in self._reader_schema.get("fields", []):
            body = io.BytesIO(value)
            body.seek(PREFIX.size)
            try:
                fastavro.schemaless_reader(body, schema, {**self._reader_schema, "fields": [field]})
            except SchemaResolutionError:
                names.append(field["name"])
            except Exception:  # noqa: S112 - an error other than the one that is explained
                continue
        return names


def _parsed_reader_schema(schema: dict[str, Any] | str | Path) -> Schema:
    """Parse the reader schema. Raises ConfigurationError."""
    try:
        text = schema.read_text(encoding="utf-8") if isinstance(schema, Path) else schema
        return parse_with_decoded_defaults(json.loads(text) if isinstance(text, str) else text)
    except OSError as error:
        raise ConfigurationError(f"reader_schema: cannot read {schema}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, OverflowError, fastavro.schema.SchemaParseException) as error:
        hint = "reader_schema is an Avro schema in JSON; pass a file as a Path"
        raise ConfigurationError(f"reader_schema is not a valid Avro schema: {error}", hint) from None


def _parsed(schema: Any) -> Schema:  # noqa: ANN401 - JSON
    parsed: Schema = fastavro.parse_schema(schema)
    return parsed


def _has_mutable_default(schema: object) -> bool:
    """Return whether a field in the schema has an array or an object as its default."""
    if isinstance(schema, list):
        return any(map(_has_mutable_default, schema))
    if not isinstance(schema, dict):
        return False
    return isinstance(schema.get("default"), list | dict) or any(map(_has_mutable_default, schema.values()))
