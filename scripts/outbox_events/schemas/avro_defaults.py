"""Parse reader schemas so that fastavro returns the defaults of missing fields as decoded values.

fastavro returns a default as it is in the schema's JSON: the number of a date, the text of bytes, a record without the
defaults of its own fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fastavro
from fastavro.read import LOGICAL_READERS

Schema = dict[str, Any] | list[Any] | str
"""Avro schema that fastavro has parsed."""
_NAMED = "__named_schemas"


def parse_with_decoded_defaults(schema: Any) -> Schema:  # noqa: ANN401 - JSON
    """Return the parsed schema. Raises the errors of fastavro.parse_schema, and ValueError for an invalid default."""
    parsed: Schema = fastavro.parse_schema(schema)
    if not isinstance(parsed, dict) or _NAMED not in parsed:
        return parsed
    named: Mapping[str, Any] = parsed[_NAMED]
    decoded: list[tuple[dict[str, Any], Any]] = [
        (field, _decoded(field["type"], field["default"], named))
        for definition in named.values()
        for field in definition.get("fields", ())
        if "default" in field
    ]
    for field, value in decoded:  # after the defaults of nested records were used in their JSON form
        field["default"] = value
    return parsed


def _decoded(schema: Any, value: Any, named: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON and a decoded value
    """Return the value of a default. The default of a union belongs to its first branch."""
    if isinstance(schema, list):
        return _decoded(schema[0], value, named)
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    kind = schema["type"]
    if not isinstance(kind, str) or kind in named:
        return _decoded(kind, value, named)
    try:
        return _decoded_type(kind, schema, value, named)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{value!r} is not a valid default of type {kind}") from error


def _decoded_type(kind: str, schema: dict[str, Any], value: Any, named: Mapping[str, Any]) -> Any:  # noqa: ANN401
    if kind in ("record", "error"):
        fields = {field["name"]: field for field in schema["fields"]}
        return {
            name: _decoded(field["type"], value[name] if name in value else field["default"], named)
            for name, field in fields.items()
        }
    if kind == "array":
        return [_decoded(schema["items"], item, named) for item in value]
    if kind == "map":
        return {key: _decoded(schema["values"], item, named) for key, item in value.items()}
    if kind in ("bytes", "fixed"):
        value = value.encode("latin-1")
    convert = LOGICAL_READERS.get(f"{kind}-{schema.get('logicalType')}")
    return value if convert is None else convert(value, schema, None)
