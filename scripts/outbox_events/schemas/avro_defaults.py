"""Parse reader schemas so that fastavro returns the defaults of missing fields as decoded values.

fastavro returns a default as it is in the schema's JSON: the number of a date, the text of bytes, a record without the
defaults of its own fields.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any

import fastavro
from fastavro.read import LOGICAL_READERS

Schema = dict[str, Any] | list[Any] | str
"""Avro schema that fastavro has parsed."""
_NAMED = "__named_schemas"
_NAMED_TYPES = ("record", "error", "enum", "fixed")
_PRIMITIVES: Mapping[str, type | tuple[type, ...]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    "string": str,
    "enum": str,
    "bytes": str,
    "fixed": str,
}
"""Types that the defaults have in JSON."""
_LIMITS = {"int": 2**31, "long": 2**63}


def parse_with_decoded_defaults(schema: Any) -> Schema:  # noqa: ANN401 - JSON
    """Return the parsed schema. Raises the errors of fastavro.parse_schema, and ValueError for an invalid default.

    Defaults are not decoded in arrays and maps at the top level, which fastavro would parse again.
    """
    parsed: Schema = fastavro.parse_schema(deepcopy(schema))  # fastavro returns a parsed schema itself
    records = parsed if isinstance(parsed, list) else [parsed]
    if not all(isinstance(record, str) or record.get("type") in _NAMED_TYPES for record in records):
        return parsed
    others = [named for record in records if isinstance(record, dict) for named in record.get(_NAMED, {}).values()]
    with suppress(RecursionError):  # too deep, or a default that contains itself
        _decode_defaults([*_definitions(parsed), *others])
    return parsed


def _decode_defaults(definitions: list[dict[str, Any]]) -> None:
    named = {definition["name"]: definition for definition in definitions}
    fields = {id(field): field for definition in definitions for field in definition.get("fields", ())}
    with_default = [field for field in fields.values() if "default" in field]
    decoded = [_decoded(field["type"], field["default"], named) for field in with_default]
    for field, value in zip(with_default, decoded, strict=True):  # the default of a record can use those of its fields
        field["default"] = value


def _definitions(schema: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """Yield the named types of a schema."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _definitions(branch)
    elif isinstance(schema, dict):
        if schema["type"] in _NAMED_TYPES:
            yield schema
        for field in schema.get("fields", ()):
            yield from _definitions(field["type"])
        for key in ("items", "values", "type"):
            yield from _definitions(schema.get(key))


def _decoded(schema: Any, value: Any, named: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON and a decoded value
    """Return the value of a default. The default of a union belongs to the first branch that accepts it."""
    if isinstance(schema, list):
        for branch in schema:
            try:
                return _decoded(branch, value, named)
            except ValueError:
                continue
        raise ValueError(f"{value!r} is not a valid default of the union {schema}")
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    kind = schema["type"]
    if isinstance(kind, dict | list) or kind in named:
        return _decoded(kind, value, named)
    if kind in ("record", "error") and isinstance(value, dict):
        return {field["name"]: _decoded_field(field, value, named) for field in schema["fields"]}
    if kind == "array" and isinstance(value, list):
        return [_decoded(schema["items"], item, named) for item in value]
    if kind == "map" and isinstance(value, dict):
        return {key: _decoded(schema["values"], item, named) for key, item in value.items()}
    if not _is_valid(kind, schema, value):
        raise ValueError(f"{value!r} is not a valid default of type {kind}")
    return _converted(kind, schema, value)


def _decoded_field(field: Mapping[str, Any], record: Mapping[str, Any], named: Mapping[str, Any]) -> Any:  # noqa: ANN401
    name = field["name"]
    if name not in record and "default" not in field:
        raise ValueError(f"the default of a record lacks field {name}")
    return _decoded(field["type"], record[name] if name in record else field["default"], named)


def _is_valid(kind: str, schema: Mapping[str, Any], value: Any) -> bool:  # noqa: ANN401 - JSON
    has_type = isinstance(value, _PRIMITIVES.get(kind, ())) and (kind == "boolean" or not isinstance(value, bool))
    if not has_type:
        return False
    if kind == "enum":
        return bool(value in schema["symbols"])
    if kind == "fixed":
        return bool(len(value) == schema["size"])
    limit = _LIMITS.get(kind)
    return limit is None or -limit <= value < limit


def _converted(kind: str, schema: dict[str, Any], value: Any) -> Any:  # noqa: ANN401
    """Return bytes, floats, and values of logical types. A value that Python's type does not support is unchanged."""
    if kind in ("bytes", "fixed"):
        value = value.encode("latin-1")
    elif kind == "double":
        value = float(value)
    elif kind == "float":
        value = ctypes.c_float(value).value  # rounded as a decoded value
    convert = LOGICAL_READERS.get(f"{kind}-{schema.get('logicalType')}")
    try:
        return value if convert is None else convert(value, schema, None)
    except (OverflowError, ValueError):
        return value
