"""Compile an Avro schema into nodes that encode JSON text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastavro import parse_schema

from outbox_kit.encoding.avro.containers import (
    ArrayNode,
    Field,
    LimitError,
    MapNode,
    RecordNode,
    UnionNode,
    Work,
    block,
)
from outbox_kit.encoding.avro.node import Node, long_bytes, mismatch, prefixed
from outbox_kit.encoding.avro.numbers import (
    FLOAT32,
    FLOAT64,
    BigDecimalNode,
    DecimalNode,
    DoubleNode,
    FloatNode,
    LongNode,
    MalformedNumberError,
)
from outbox_kit.encoding.avro.scalars import (
    BooleanNode,
    BytesNode,
    DateNode,
    EnumNode,
    NullNode,
    StringNode,
    TimeNode,
    TimestampNode,
    UuidNode,
)
from outbox_kit.encoding.json_values import WHITE_SPACE, parse
from outbox_kit.encoding.row import PayloadError

TIMESTAMPS = frozenset(
    f"{prefix}timestamp-{unit}" for prefix in ("", "local-") for unit in ("millis", "micros", "nanos")
)
UUID_SIZE = 16
DEFAULT_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    **dict.fromkeys(("int", "long", "float", "double"), (int, float)),
    **dict.fromkeys(("string", "bytes", "fixed"), (str,)),
}
"""Types of the default values of unnested types in Python's JSON."""
PRIMITIVES: dict[str, Callable[[], Node]] = {
    "null": NullNode,
    "boolean": BooleanNode,
    "float": FloatNode,
    "double": DoubleNode,
}


class AvroEncoder:
    """Encodes JSON text with one schema version. docs/smt-payloads.md lists the accepted values of each Avro type."""

    def __init__(self, schema: str, *, ignore_unknown: bool = False) -> None:
        self._work = Work()
        named: dict[str, Any] = {}
        parsed = parse_schema(json.loads(schema), named)
        self._root = _Compiler(named, self._work, ignore_unknown=ignore_unknown).compile(parsed)

    def encode(self, text: str) -> tuple[bytes, int]:
        """Return the Avro body and the number of skipped fields. Raises PayloadError."""
        self._work.start(len(text))
        if not text.strip(WHITE_SPACE):
            raise mismatch(self._root.expected, "no value")
        try:
            return self._root.encode(parse(text)), self._work.skipped
        except LimitError:
            raise PayloadError("too many combinations of union branches") from None
        except MalformedNumberError:
            raise PayloadError("not valid JSON: malformed number") from None


class _Compiler:
    """Compiles schema nodes. `named` contains the definitions of named types by full name."""

    def __init__(self, named: dict[str, Any], work: Work, *, ignore_unknown: bool) -> None:
        self._named, self._work, self._ignore_unknown = named, work, ignore_unknown
        self._records: dict[str, RecordNode] = {}

    def compile(self, schema: Any) -> Node:  # noqa: ANN401 - any node of a schema
        if isinstance(schema, list):
            return UnionNode([self.compile(branch) for branch in schema], self._work)
        schema = definition(schema, self._named)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema)
        if kind in ("array", "map"):
            return (
                ArrayNode(self.compile(schema["items"])) if kind == "array" else MapNode(self.compile(schema["values"]))
            )
        if kind == "enum":
            return EnumNode(schema["name"], schema["symbols"])
        return _binary(schema) if kind in ("bytes", "fixed") else _primitive(kind, str(schema.get("logicalType", "")))

    def _record(self, schema: dict[str, Any]) -> RecordNode:
        name = schema["name"]
        if name in self._records:
            return self._records[name]
        node = RecordNode(name, self._work, ignore_unknown=self._ignore_unknown)
        self._records[name] = node
        for field in schema["fields"]:
            default = default_bytes(field["type"], field["default"], self._named) if "default" in field else None
            node.add(Field(field["name"], self.compile(field["type"]), default))
        return node


def _primitive(kind: str, logical_type: str) -> Node:
    if kind == "int" and logical_type == "date":
        return DateNode()
    if (kind, logical_type) in (("int", "time-millis"), ("long", "time-micros")):
        return TimeNode(logical_type)
    if kind == "long" and logical_type in TIMESTAMPS:
        return TimestampNode(logical_type)
    if kind in ("int", "long"):
        return LongNode(kind)
    if kind == "string":
        return UuidNode(is_fixed=False) if logical_type == "uuid" else StringNode()
    return PRIMITIVES[kind]()


def _binary(schema: dict[str, Any]) -> Node:
    size = schema["size"] if schema["type"] == "fixed" else None
    logical_type = schema.get("logicalType")
    if logical_type == "decimal":
        return DecimalNode(schema["precision"], schema.get("scale", 0), size)
    if logical_type == "big-decimal" and size is None:
        return BigDecimalNode()
    if logical_type == "uuid" and size == UUID_SIZE:
        return UuidNode(is_fixed=True)
    return BytesNode(size)


def default_bytes(schema: Any, value: Any, named: dict[str, Any]) -> bytes:  # noqa: ANN401 - any schema and default
    """Encode a default value from its JSON form in the schema.

    A union's default belongs to the first branch that Avro's Java library considers compatible with its JSON type.
    """
    if isinstance(schema, list):
        kinds = (definition(branch, named)["type"] for branch in schema)
        number = next(n for n, kind in enumerate(kinds) if type(value) in DEFAULT_TYPES.get(kind, (type(value),)))
        return long_bytes(number) + default_bytes(schema[number], value, named)
    schema = definition(schema, named)
    kind = schema["type"]
    if kind in ("record", "error"):
        return _default_record(schema, value, named)
    if kind in ("array", "map"):
        return _default_items(schema, value, named)
    if kind == "enum":
        return long_bytes(schema["symbols"].index(value))
    return _default_primitive(kind, value, schema.get("size"))


def definition(schema: Any, named: dict[str, Any]) -> Any:  # noqa: ANN401 - any node of a schema
    """Return the definition of a node that is not a union, as an object whose type is a built-in Avro type."""
    while isinstance(schema, str) or not isinstance(schema["type"], str) or schema["type"] in named:
        name = schema if isinstance(schema, str) else schema["type"]
        if isinstance(name, str) and name not in named:
            return {"type": name}
        schema = named[name] if isinstance(name, str) else name
    return schema


def _default_record(schema: dict[str, Any], value: dict[str, Any], named: dict[str, Any]) -> bytes:
    fields = schema["fields"]
    return b"".join(
        default_bytes(field["type"], value.get(field["name"], field.get("default")), named) for field in fields
    )


def _default_items(schema: dict[str, Any], value: Any, named: dict[str, Any]) -> bytes:  # noqa: ANN401 - array or map
    if schema["type"] == "array":
        return block([default_bytes(schema["items"], item, named) for item in value])
    return block([prefixed(key.encode()) + default_bytes(schema["values"], item, named) for key, item in value.items()])


def _default_primitive(kind: str, value: Any, size: int | None) -> bytes:  # noqa: ANN401 - any default
    if kind in ("int", "long"):
        return long_bytes(int(value))
    if kind in ("float", "double"):
        return (FLOAT32 if kind == "float" else FLOAT64).pack(float(value))
    if kind == "string":
        return prefixed(value.encode())
    if kind == "bytes":
        return prefixed(value.encode("latin-1", "replace"))  # one character per byte, as Avro specifies
    if size is not None:  # fixed; Avro's Java library completes or truncates the value
        return bytes(value.encode("latin-1", "replace")[:size].ljust(size, b"\0"))
    return b"" if kind == "null" else bytes([bool(value)])
