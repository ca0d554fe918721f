"""Give types and fields of a writer's schema the reader's names, so that Avro's Java library can resolve both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from outbox_events.schemas.avro_schema import (
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
    """Return the writer's schema as JSON text in which types and fields have the names from the reader's schema.

    Names are not part of the encoding. However, Avro's Java library cannot read an enum or fixed whose full name has
    changed (for example with the namespace of the enclosing record), and it applies field aliases only in a record of
    the same name. A type or field that the reader's schema lacks keeps its name.
    """
    writer, reader = load(writer_schema), load(reader_schema)
    fields: dict[tuple[str, str], str] = {}
    types: dict[str, str] = {}
    for writer_type, reader_type in _pairs(writer, writer.root, reader, reader.root, set()):
        types.setdefault(writer_type["name"], reader_type["name"])
        for new_name, name in _renamed_fields(writer_type, reader_type):
            fields.setdefault((writer_type["name"], name), new_name)
    return _Renaming(_without_clashes(types, writer.named_types), fields).apply(writer)


class _Renaming:
    """Rewrites a schema. `types` maps types to new full names, and `fields` maps (type, field) to new field names."""

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
            result.pop("aliases", None)  # schema resolution uses only the reader's aliases
            self._named[result["name"]] = result
        for key in ("items", "values"):
            if key in node:
                result[key] = self._node(node[key])
        if "fields" in node:
            result["fields"] = [self._field(node["name"], field) for field in node["fields"]]
        return result

    def _field(self, record_name: str, field: Mapping[str, Any]) -> dict[str, Any]:
        attributes = {key: value for key, value in field.items() if key != "aliases"}
        name = self._fields.get((record_name, field["name"]), field["name"])
        return {**attributes, "name": name, "type": self._node(field["type"])}


def _pairs(
    writer: Schema, writer_type: Node, reader: Schema, reader_type: Node, visited: set[tuple[str, str]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each named type of the writer together with the reader's type to which it is resolved."""
    for writer_branch in writer.branches(writer_type):
        reader_branch = next(iter(same_kind(writer_branch, reader.branches(reader_type))), None)
        if reader_branch is None:
            continue
        kind = kind_of(writer_branch)
        if kind in NAMED_TYPES:
            pair = (writer_branch["name"], reader_branch["name"])
            if pair in visited:
                continue
            visited.add(pair)
            yield writer_branch, reader_branch
        if kind == "record":
            sources = field_types(writer_branch)
            for field in reader_branch["fields"]:
                source = source_field(field, sources)
                if source is not None:
                    yield from _pairs(writer, sources[source], reader, field["type"], visited)
        elif kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            yield from _pairs(writer, writer_branch[key], reader, reader_branch[key], visited)


def _renamed_fields(writer_type: Mapping[str, Any], reader_type: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (new name, old name) for each field that the reader resolves by an alias."""
    if "fields" in writer_type and "fields" in reader_type:
        sources = field_types(writer_type)
        for field in reader_type["fields"]:
            source = source_field(field, sources)
            if source is not None and source != field["name"]:
                yield field["name"], source


def _without_clashes(types: Mapping[str, str], named: Mapping[str, Any]) -> dict[str, str]:
    """Return the renamings that do not give two types the same name. Types without a namespace get a namespace."""
    renamings: dict[str, str] = {}
    unchanged_names = set(named) - set(types)
    for name, new_name in types.items():
        if new_name not in unchanged_names and new_name not in renamings.values():
            renamings[name] = new_name
        else:
            unchanged_names.add(name)
    # A type without a namespace cannot be referenced from within a type that has one.
    return {**renamings, **{name: f"outbox.{name}" for name in unchanged_names if "." not in name}}
