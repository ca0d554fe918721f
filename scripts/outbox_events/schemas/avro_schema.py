"""Represent Avro schemas as trees of JSON values in which every named type has its full name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NAMED_TYPES = frozenset({"record", "error", "enum", "fixed"})
Node = Any  # a type as JSON: a string (name), a list (union) or an object
Definitions = dict[str, dict[str, Any]]  # named types by full name


@dataclass(frozen=True)
class Schema:
    """A schema in which types have full names. `named_types` maps full names to definitions."""

    root: Node
    named_types: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def definition(self, node: Node) -> Node:
        """Return the definition if the node is the full name of a named type, or else the node itself."""
        return self.named_types.get(node, node) if isinstance(node, str) else node

    def branches(self, node: Node) -> list[Node]:
        """Return a union's branches, or a list that contains only `node`. Type names are replaced by definitions."""
        return [self.definition(branch) for branch in (node if isinstance(node, list) else [node])]

    def text(self, node: Node = None) -> str:
        """Return `node` (default: the whole schema) as JSON text. Each named type is defined where it is first used."""
        return compact(self._expanded(self.root if node is None else node, "", set()))

    def _expanded(self, node: Node, namespace: str, defined: set[str]) -> Node:
        if isinstance(node, list):
            return [self._expanded(branch, namespace, defined) for branch in node]
        definition = self.definition(node)
        if not isinstance(definition, dict):
            return definition
        result = dict(definition)
        if kind_of(definition) in NAMED_TYPES:
            name = str(definition["name"])
            if name in defined:
                return name
            defined.add(name)
            if "." not in name and namespace:
                result["namespace"] = ""  # otherwise the type would inherit the enclosing namespace
            namespace = name.rpartition(".")[0]
        for key in ("items", "values"):
            if key in definition:
                result[key] = self._expanded(definition[key], namespace, defined)
        if "fields" in definition:
            result["fields"] = [
                {**entry, "type": self._expanded(entry["type"], namespace, defined)} for entry in definition["fields"]
            ]
        return result


def load(text: str, references: Sequence[str] = ()) -> Schema:
    """Parse a schema (JSON text). `references` contains the texts of the referenced types, in dependency order."""
    named_types: Definitions = {}
    for reference in references:
        _qualified(json.loads(reference), "", named_types)
    return Schema(_qualified(json.loads(text), "", named_types), named_types)


def inline(text: str, references: Sequence[str]) -> str:
    """Return `text` with the types of `references` (in dependency order) defined where they are first used."""
    return load(text, references).text() if references else text


def compact(definition: Node) -> str:
    """Return the schema as JSON text without whitespace between tokens."""
    return json.dumps(definition, separators=(",", ":"), ensure_ascii=False)


def kind_of(node: Node) -> str:
    """Return a node's type, such as record, string or union, without its logical type. Type names are kept."""
    return str(node["type"]) if isinstance(node, dict) else "union" if isinstance(node, list) else str(node)


def short_name(node: Node) -> str:
    """Return the name of a named type without its namespace, or an empty text for any other node."""
    return str(node.get("name", "")).rpartition(".")[2] if isinstance(node, dict) else ""


def same_kind(branch: Node, candidates: Sequence[Node]) -> list[Node]:
    """Return candidates of the same kind as `branch`. Those with its full name precede those with its short name."""
    matches = [candidate for candidate in candidates if kind_of(candidate) == kind_of(branch)]
    if kind_of(branch) in NAMED_TYPES:
        matches.sort(key=lambda match: (match["name"] != branch["name"], short_name(match) != short_name(branch)))
    return matches


def source_field(reader_field: Mapping[str, Any], writer_fields: Mapping[str, Node]) -> str | None:
    """Return the name of the writer's field that matches a reader's field by name or alias, or None."""
    names = (reader_field["name"], *reader_field.get("aliases", ()))
    return next((name for name in names if name in writer_fields), None)


def field_types(record: Mapping[str, Any]) -> dict[str, Node]:
    return {entry["name"]: entry["type"] for entry in record["fields"]}


def _qualified(node: Node, namespace: str, types: Definitions) -> Node:
    """Return `node` with full names, and add its named types to `types`."""
    if isinstance(node, str):
        full_name = f"{namespace}.{node}"
        return full_name if full_name in types else node
    if isinstance(node, list):
        return [_qualified(branch, namespace, types) for branch in node]
    kind = node["type"]
    if not isinstance(kind, str):
        return _qualified(kind, namespace, types)
    result = {key: value for key, value in node.items() if key != "namespace"}
    if kind in NAMED_TYPES:
        name, namespace = str(node["name"]), str(node.get("namespace", namespace))
        result["name"] = name if "." in name or not namespace else f"{namespace}.{name}"
        namespace = result["name"].rpartition(".")[0]
        types[result["name"]] = result  # before its fields are processed, because they can refer to it
    if "fields" in node:
        result["fields"] = [{**entry, "type": _qualified(entry["type"], namespace, types)} for entry in node["fields"]]
    for key in ("items", "values"):
        if key in node:
            result[key] = _qualified(node[key], namespace, types)
    is_type_name = kind not in (*NAMED_TYPES, "array", "map") and not {kind, f"{namespace}.{kind}"}.isdisjoint(types)
    return _qualified(kind, namespace, types) if is_type_name else result
