"""Compare a record's value with the state that the `backfill` query returns.

A value is decoded with the schema of its schema id, from the lock file or, for older versions, from the registry. It is
read with the newest schema, as consumers read it: a field that was added later has its default. A difference is
reported only if it is certain. Fields that the state does not have count as equal, and so do values whose JSON form
depends on the service, such as bytes and unions of several types.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
from fastavro.read import SchemaResolutionError

from outbox_events.contract import wire_format
from outbox_events.contract.source_sequence import Version
from outbox_events.schemas.avro_defaults import parse_with_decoded_defaults
from outbox_kit.pipeline import Lock
from outbox_kit.pipeline.avro import SCHEMA_ERRORS

FLOAT_TOLERANCE = 1e-6
DECODING_ERRORS = (EOFError, ValueError, IndexError, TypeError, KeyError, OverflowError, SchemaResolutionError)
PARSING_ERRORS = (ValueError, TypeError, ArithmeticError)


@dataclass(frozen=True)
class Difference:
    """Fields in which a record differs from the current `state`. A later update changes `version` or `state`."""

    fields: tuple[str, ...]
    version: Version
    state: str


class ValueDecoder:
    """Decodes the Avro values of one aggregate type, and compares them with states."""

    def __init__(self, lock: Lock | None, aggregate_type: str, fetch: Callable[[int], str | None]) -> None:
        """`fetch` returns the text of a schema that the lock file does not contain; None if it is unknown."""
        entries = lock.schemas.get(aggregate_type, []) if lock else []
        self._schemas = {entry.id: _parsed(entry.text) for entry in entries}
        self._newest = next(iter(self._schemas.values()), None)
        self._fetch = fetch

    def different_fields(self, value: bytes, state: str) -> tuple[str, ...]:
        """Return the names of the fields that differ; empty if the value cannot be decoded. `state` is JSON."""
        schema_id = wire_format.schema_id(value)
        if schema_id is None:
            return ()
        if schema_id not in self._schemas:
            self._schemas[schema_id] = _parsed(self._fetch(schema_id))
        written = self._schemas[schema_id]
        if written is None:
            return ()
        try:
            schema, record = self._read(wire_format.body(value), written)
        except DECODING_ERRORS:
            return ()
        fields = json.loads(state, parse_float=Decimal)
        if not isinstance(record, dict) or not isinstance(fields, dict):
            return ()
        return tuple(_different_fields(schema["fields"], fields, record))

    def _read(self, body: bytes, written: Any) -> Any:  # noqa: ANN401 - a schema of fastavro
        """Return the newest schema and the record as it reads it. If it cannot, return the writer's schema.

        Raises SchemaResolutionError for a record of another type, whose id belongs to another registry.
        """
        newest = self._newest or written
        try:
            return newest, fastavro.schemaless_reader(io.BytesIO(body), written, None if newest is written else newest)
        except SchemaResolutionError:
            if _name(written) != _name(newest):
                raise
            return written, fastavro.schemaless_reader(io.BytesIO(body), written, None)


def _name(schema: Any) -> str | None:  # noqa: ANN401
    return schema.get("name") if isinstance(schema, dict) else None


def _parsed(text: str | None) -> Any:  # noqa: ANN401
    """Parse a schema. Return None for a schema with references: its types are in other subjects."""
    try:
        return None if text is None else parse_with_decoded_defaults(json.loads(text))
    except SCHEMA_ERRORS:
        return None


def _different_fields(schema_fields: Iterable[Any], state: Mapping[str, Any], record: Mapping[str, Any]) -> list[str]:
    return [
        field["name"]
        for field in schema_fields
        if field["name"] in state
        and field["name"] in record  # the default of a record can lack fields
        and not _is_same(field["type"], state[field["name"]], record[field["name"]])
    ]


def _is_same(avro_type: Any, state: Any, value: Any) -> bool:  # noqa: ANN401 - parsed JSON and a decoded value
    """Return False only if the JSON value `state` certainly differs from the decoded `value`."""
    if state is None or value is None:
        return state is value
    if isinstance(avro_type, list):
        branches = [branch for branch in avro_type if branch != "null"]
        return len(branches) != 1 or _is_same(branches[0], state, value)
    if not isinstance(avro_type, dict):
        return _is_same_scalar(str(avro_type), state, value)
    kind: Any = avro_type.get("logicalType", avro_type["type"])
    if isinstance(kind, dict | list):
        return _is_same(kind, state, value)
    compare = _CONTAINERS.get(kind)
    return compare(avro_type, state, value) if compare else _is_same_scalar(kind, state, value)


def _is_same_scalar(kind: str, state: Any, value: Any) -> bool:  # noqa: ANN401
    compare = _SCALARS.get(kind)
    try:
        return compare is None or compare(state, value)
    except PARSING_ERRORS:
        return True


def _same_array(avro_type: Any, state: Any, value: Any) -> bool:  # noqa: ANN401
    if not isinstance(state, list):
        return True
    pairs = zip(state, value, strict=False)
    return len(state) == len(value) and all(_is_same(avro_type["items"], *pair) for pair in pairs)


def _same_map(avro_type: Any, state: Any, value: Any) -> bool:  # noqa: ANN401
    if not isinstance(state, dict):
        return True
    return state.keys() == value.keys() and all(_is_same(avro_type["values"], state[key], value[key]) for key in state)


def _same_record(avro_type: Any, state: Any, value: Any) -> bool:  # noqa: ANN401
    return not isinstance(state, dict) or not _different_fields(avro_type["fields"], state, value)


def _same_text(state: Any, value: Any) -> bool:  # noqa: ANN401
    return not isinstance(state, str) or state == str(value)


def _same_number(state: Any, value: Any) -> bool:  # noqa: ANN401
    is_number = isinstance(state, int | Decimal) and not isinstance(state, bool | datetime)
    return not (is_number and isinstance(value, int)) or state == value


def _same_float(state: Any, value: Any) -> bool:  # noqa: ANN401
    return math.isclose(float(state), value, rel_tol=FLOAT_TOLERANCE)


def _same_instant(precision: timedelta) -> Callable[[Any, Any], bool]:
    def compare(state: Any, value: Any) -> bool:  # noqa: ANN401
        return not isinstance(state, str) or abs(datetime.fromisoformat(state) - value) < precision

    return compare


_CONTAINERS: dict[str, Callable[[Any, Any, Any], bool]] = {
    "array": _same_array,
    "map": _same_map,
    "record": _same_record,
}
_SCALARS: dict[str, Callable[[Any, Any], bool]] = {
    "string": _same_text,
    "enum": _same_text,
    "uuid": lambda state, value: str(state).lower() == str(value).lower(),
    "int": _same_number,
    "long": _same_number,
    "float": _same_float,
    "double": _same_float,
    "boolean": lambda state, value: not isinstance(state, bool) or state == value,
    "decimal": lambda state, value: Decimal(state) == value,
    "date": lambda state, value: not isinstance(state, str) or date.fromisoformat(state) == value,
    "timestamp-millis": _same_instant(timedelta(milliseconds=1)),
    # A timestamp that has more than six decimal places in the payload is truncated or rounded.
    "timestamp-micros": _same_instant(timedelta(microseconds=2)),
}
