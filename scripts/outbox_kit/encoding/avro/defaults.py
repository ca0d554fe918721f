"""Avro encoding of the defaults of fields, which have the JSON form of the Avro specification."""

from __future__ import annotations

import struct
from typing import Any

from outbox_kit.encoding.avro.varints import long_bytes, prefixed


def default_bytes(schema: Any, value: Any, named: dict[str, Any]) -> bytes:  # noqa: ANN401 - any schema and default
    """Return a default as Avro binary. The default of a union has the type of the first branch."""
    if isinstance(schema, list):
        return long_bytes(0) + default_bytes(schema[0], value, named)
    schema = definition(schema, named)
    kind = schema["type"]
    if kind in ("record", "error"):
        return _record(schema, value, named)
    if kind in ("array", "map"):
        return _block(schema, value, named)
    if kind == "enum":
        return long_bytes(schema["symbols"].index(value))
    return _primitive(kind, value)


def definition(schema: Any, named: dict[str, Any]) -> Any:  # noqa: ANN401 - any node of a schema
    """Return the definition of a node that is not a union: an object whose type is a name of the specification."""
    while isinstance(schema, str) or not isinstance(schema["type"], str) or schema["type"] in named:
        name = schema if isinstance(schema, str) else schema["type"]
        if isinstance(name, str) and name not in named:
            return {"type": name}
        schema = named[name] if isinstance(name, str) else name
    return schema


def _record(schema: dict[str, Any], value: dict[str, Any], named: dict[str, Any]) -> bytes:
    fields = schema["fields"]
    return b"".join(
        default_bytes(field["type"], value.get(field["name"], field.get("default")), named) for field in fields
    )


def _block(schema: dict[str, Any], value: Any, named: dict[str, Any]) -> bytes:  # noqa: ANN401 - array or map
    if not value:
        return b"\x00"
    if schema["type"] == "array":
        items = [default_bytes(schema["items"], item, named) for item in value]
    else:
        items = [prefixed(key.encode()) + default_bytes(schema["values"], item, named) for key, item in value.items()]
    return long_bytes(len(items)) + b"".join(items) + b"\x00"


def _primitive(kind: str, value: Any) -> bytes:  # noqa: ANN401 - any default
    if kind in ("int", "long"):
        return long_bytes(int(value))
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", float(value))
    if kind == "string":
        return prefixed(value.encode())
    if kind == "bytes":
        return prefixed(value.encode("latin-1"))  # one character per byte, as Avro specifies
    if kind == "fixed":
        return bytes(value.encode("latin-1"))
    return b"" if kind == "null" else bytes([bool(value)])
