"""Rewrites a writer's schema with the names of the reader's schema, so that Avro's Java library can read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from outbox_common.avro_schema import (
    NAMED_TYPES,
    Definitions,
    Node,
    Schema,
    field_types,
    kind_of,
    load,
    same_kind,
    source_field,
)


def resolvable_schema(writer_schema: str, reader_schema: str) -> str:
    """Return the writer's schema with the reader's names of types and fields, as JSON text.

    Names are not part of the encoding, but Avro's Java library cannot read an enum or fixed whose full name changed
    (for example with the namespace of the enclosing record), and applies aliases of fields only in a record of the
    same name. A type or field without a counterpart keeps its name.
    """
    writer, reader = load(writer_schema), load(reader_schema)
    fields: dict[tuple[str, str], str] = {}
    types: dict[str, str] = {}
    for written, expected in _pairs(writer, writer.root, reader, reader.root, set()):
        types.setdefault(written["name"], expected["name"])
        for new, old in _renamed_fields(written, expected):
            fields.setdefault((written["name"], old), new)
    return _Renaming(_without_clashes(types, writer.named), fields).apply(writer)


class _Renaming:
    """Rewrites a schema. `types` has the new full name of each type, `fields` the new name of each (type, field)."""

    def __init__(self, types: Mapping[str, str], fields: Mapping[tuple[str, str], str]) -> None:
        self._types, self._fields = types, fields
        self._named: Definitions = {}

    def apply(self, schema: Schema) -> str:
        return Schema(self._node(schema.root), self._named).text()

    def _node(self, node: Node) -> Node:
        if isinstance(node, list):
            return [self._node(branch) for branch in node]
        if isinstance(node, str):
            return self._types.get(node, node)
        result = dict(node)
        if kind_of(node) in NAMED_TYPES:
            result["name"] = self._types.get(node["name"], node["name"])
            result.pop("aliases", None)  # only aliases of the reader take part in schema resolution
            self._named[result["name"]] = result
        for key in ("items", "values"):
            if key in node:
                result[key] = self._node(node[key])
        if "fields" in node:
            result["fields"] = [self._field(node["name"], entry) for entry in node["fields"]]
        return result

    def _field(self, record: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        attributes = {key: value for key, value in entry.items() if key != "aliases"}
        name = self._fields.get((record, entry["name"]), entry["name"])
        return {**attributes, "name": name, "type": self._node(entry["type"])}


def _pairs(
    writer: Schema, written: Node, reader: Schema, expected: Node, visited: set[tuple[str, str]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield pairs of a named type of the writer and the reader's type that it is read as."""
    for branch in writer.branches(written):
        target = next(iter(same_kind(branch, reader.branches(expected))), None)
        if target is None:
            continue
        kind = kind_of(branch)
        if kind in NAMED_TYPES:
            pair = (branch["name"], target["name"])
            if pair in visited:
                continue
            visited.add(pair)
            yield branch, target
        if kind == "record":
            sources = field_types(branch)
            for entry in target["fields"]:
                source = source_field(entry, sources)
                if source is not None:
                    yield from _pairs(writer, sources[source], reader, entry["type"], visited)
        elif kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            yield from _pairs(writer, branch[key], reader, target[key], visited)


def _renamed_fields(written: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (new name, old name) of the fields that the reader reads by an alias."""
    if "fields" in written and "fields" in expected:
        sources = field_types(written)
        for entry in expected["fields"]:
            source = source_field(entry, sources)
            if source is not None and source != entry["name"]:
                yield entry["name"], source


def _without_clashes(types: Mapping[str, str], named: Mapping[str, Any]) -> dict[str, str]:
    """Return the renamings that do not give two types of the writer the same name."""
    result: dict[str, str] = {}
    unchanged = set(named) - set(types)
    for old, new in types.items():
        if new not in unchanged and new not in result.values():
            result[old] = new
        else:
            unchanged.add(old)
    # A type without namespace cannot be referred to from within a type that has one.
    return {**result, **{name: f"outbox.{name}" for name in unchanged if "." not in name}}
