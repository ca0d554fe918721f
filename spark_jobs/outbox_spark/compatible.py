"""Whether what a schema writes means to the newest schema what it meant to its writer.

Avro resolves a writer's field into a reader's by physical type alone: a long of milliseconds is read as a
long of microseconds, and nobody notices. So logical types are compared here, before anything is decoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from outbox_spark.errors import SchemaError

_NAMED = ("record", "error", "enum", "fixed")
_PROMOTIONS: Mapping[str, frozenset[str]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
Named = dict[str, dict[str, Any]]


def check_writer(writer: str, reader: str, what: str) -> None:
    """Compare a writer's schema with the newest one, both JSON text. Raises SchemaError naming the first field.

    `what` names the writer's schema. Schemas that Avro cannot resolve at all pass: decoding tells.
    """
    comparison = _Comparison()
    for field, written, wanted in comparison.record_fields(comparison.load(writer, 0), comparison.load(reader, 1), ""):
        message = f"field {field}: {what} writes {written}; the newest schema would read it as {wanted}"
        raise SchemaError(message, "undo the change of type in the newest schema, or give the new field another name")


class _Comparison:
    """A walk over two schemas at once."""

    def __init__(self) -> None:
        self._named: tuple[Named, Named] = ({}, {})
        self._seen: set[tuple[str, str]] = set()

    def load(self, schema: str, side: int) -> Any:  # noqa: ANN401 - any node of an Avro schema
        return _qualified(json.loads(schema), "", self._named[side])

    def record_fields(self, writer: Any, reader: Any, path: str) -> Iterator[tuple[str, str, str]]:  # noqa: ANN401
        """Fields that differ: path, what is written, what is read."""
        if _kind(writer) != "record" or _kind(reader) != "record":
            return
        pair = (str(writer["name"]), str(reader["name"]))
        if pair in self._seen:  # a type that contains itself
            return
        self._seen.add(pair)
        written = {field["name"]: field["type"] for field in writer["fields"]}
        for field in reader["fields"]:
            source = next((n for n in (field["name"], *field.get("aliases", ())) if n in written), None)
            if source is not None:
                yield from self._node(written[source], field["type"], f"{path}{field['name']}")

    def _node(self, writer: Any, reader: Any, path: str) -> Iterator[tuple[str, str, str]]:  # noqa: ANN401
        for written in self._branches(writer, 0):
            wanted = _match(written, self._branches(reader, 1))
            if wanted is None:
                continue
            meant, understood = _meaning(written), _meaning(wanted)
            if meant != understood:
                yield path, meant or _kind(written), understood or _kind(wanted)
            elif _kind(written) == "record":
                yield from self.record_fields(written, wanted, f"{path}.")
            elif _kind(written) == "array":
                yield from self._node(written["items"], wanted["items"], f"{path}[]")
            elif _kind(written) == "map":
                yield from self._node(written["values"], wanted["values"], f"{path}{{}}")

    def _branches(self, node: Any, side: int) -> list[Any]:  # noqa: ANN401
        branches = node if isinstance(node, list) else [node]
        return [self._named[side].get(b, b) if isinstance(b, str) else b for b in branches]


def _match(written: Any, branches: list[Any]) -> Any:  # noqa: ANN401
    """The branch that Avro resolves to: of the same name, else of the same kind, else one to promote to."""
    kind = _kind(written)
    same = [branch for branch in branches if _kind(branch) == kind]
    if kind in _NAMED:
        same.sort(key=lambda branch: (branch["name"] != written["name"], _short(branch) != _short(written)))
    promoted = [branch for branch in branches if _kind(branch) in _PROMOTIONS.get(kind, ())]
    return next(iter([*same, *promoted]), None)


def _meaning(node: Any) -> str:  # noqa: ANN401
    """The logical type, where the value depends on it; empty: none.

    Text is the same text whatever it is called, and so are the bytes of a uuid. A decimal's precision only
    says how many digits there can be.
    """
    if not isinstance(node, dict) or node["type"] == "string":
        return ""
    logical = str(node.get("logicalType", ""))
    if logical == "decimal":
        return f"decimal of scale {int(node.get('scale', 0))}"
    return "" if logical == "uuid" else logical


def _kind(node: Any) -> str:  # noqa: ANN401
    return str(node["type"]) if isinstance(node, dict) else str(node)


def _short(node: Mapping[str, Any]) -> str:
    return str(node["name"]).rpartition(".")[2]


def _qualified(node: Any, namespace: str, named: Named) -> Any:  # noqa: ANN401
    """The same schema with full names everywhere; named types are entered in `named`."""
    if isinstance(node, str):
        full = f"{namespace}.{node}"
        return full if full in named else node
    if isinstance(node, list):
        return [_qualified(branch, namespace, named) for branch in node]
    if not isinstance(node["type"], str):
        return _qualified(node["type"], namespace, named)
    kind, result = node["type"], dict(node)
    if kind in _NAMED:
        name = str(node["name"])
        space = str(node.get("namespace", namespace))
        result["name"] = name if "." in name or not space else f"{space}.{name}"
        namespace = result["name"].rpartition(".")[0]
        named[result["name"]] = result  # before its fields, which may refer to it
    if kind in ("record", "error"):
        result["fields"] = [{**f, "type": _qualified(f["type"], namespace, named)} for f in node["fields"]]
    for part in ("items", "values"):
        if part in node:
            result[part] = _qualified(node[part], namespace, named)
    return result if kind in (*_NAMED, "array", "map") or kind not in named else named[kind]
