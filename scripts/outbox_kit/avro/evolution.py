"""What a change of schema means to records that were written before: unreadable, or read as something else.

Avro resolves a writer's field into a reader's by physical type alone: a long of milliseconds is read as a
long of microseconds, and nobody notices; a registry calls it compatible. So logical types are compared too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_NAMED = ("record", "error", "enum", "fixed")
_PROMOTIONS: Mapping[str, frozenset[str]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
_NOTHING = "nothing"
Named = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Difference:
    """One field that a reader's schema has otherwise than the writer's."""

    field: str
    written: str
    wanted: str
    readable: bool
    """True: the bytes are read, as another value. False: they cannot be read at all."""


def differences(writer: str, reader: str) -> list[Difference]:
    """Fields of records under `writer` that `reader` would read as something else, or not at all; JSON texts.

    Fields that are added with a default or removed are none: Avro reads them as they were meant.
    """
    comparison = _Comparison()
    return list(comparison.record_fields(comparison.load(writer, 0), comparison.load(reader, 1), ""))


def field_paths(schema: str) -> set[str]:
    """Every field of a record, those of nested records as `outer.inner`."""
    named: Named = {}
    return set(_paths(_qualified(json.loads(schema), "", named), "", named, ()))


def _paths(node: Any, path: str, named: Named, inside: tuple[str, ...]) -> Iterator[str]:  # noqa: ANN401
    for branch in node if isinstance(node, list) else [node]:
        found: Any = named.get(branch, branch) if isinstance(branch, str) else branch
        if _kind(found) == "record" and found["name"] not in inside:
            for field in found["fields"]:
                name = f"{path}{field['name']}"
                yield name
                yield from _paths(field["type"], f"{name}.", named, (*inside, found["name"]))
        elif _kind(found) in ("array", "map"):
            yield from _paths(found["items" if _kind(found) == "array" else "values"], path, named, inside)


class _Comparison:
    """A walk over two schemas at once."""

    def __init__(self) -> None:
        self._named: tuple[Named, Named] = ({}, {})
        self._seen: set[tuple[str, str]] = set()

    def load(self, schema: str, side: int) -> Any:  # noqa: ANN401 - any node of an Avro schema
        return _qualified(json.loads(schema), "", self._named[side])

    def record_fields(self, writer: Any, reader: Any, path: str) -> Iterator[Difference]:  # noqa: ANN401
        """Fields that differ."""
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
            elif "default" not in field:
                wanted = f"{_words(self._branches(field['type'], 1))} without a default"
                yield Difference(f"{path}{field['name']}", _NOTHING, wanted, readable=False)

    def _node(self, writer: Any, reader: Any, path: str) -> Iterator[Difference]:  # noqa: ANN401
        for written in self._branches(writer, 0):
            branches = self._branches(reader, 1)
            wanted = _match(written, branches)
            if wanted is None:
                yield Difference(path, _words([written]), _words(branches), readable=False)
                continue
            meant, understood = _meaning(written), _meaning(wanted)
            if meant != understood:
                yield Difference(path, meant or _kind(written), understood or _kind(wanted), readable=True)
            elif not _fits(written, wanted):
                yield Difference(path, _words([written]), f"another {_words([wanted])}", readable=False)
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


def _fits(written: Any, wanted: Any) -> bool:  # noqa: ANN401
    """Whether every value of an enum or a fixed has a place in the reader's."""
    if _kind(written) == "enum" and _kind(wanted) == "enum":
        return "default" in wanted or set(written["symbols"]) <= set(wanted["symbols"])
    if _kind(written) == "fixed" and _kind(wanted) == "fixed":
        return bool(written["size"] == wanted["size"])
    return True


def _words(branches: list[Any]) -> str:
    """Types as a person writes them."""
    return " or ".join(str(b["name"]) if _kind(b) in _NAMED and isinstance(b, dict) else _kind(b) for b in branches)


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
