"""Avro schemas as trees with full names, and how a writer's is put into the reader's words. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

NAMED = ("record", "error", "enum", "fixed")
Node = Any  # text, a list or an object of a schema in JSON


@dataclass(frozen=True)
class Schema:
    """A schema in which every name is a full one; a type that is used again is its name."""

    root: Node
    named: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def definition(self, node: Node) -> Node:
        """What a name stands for; anything else as it is."""
        return self.named.get(node, node) if isinstance(node, str) else node

    def branches(self, node: Node) -> list[Node]:
        """Definitions of the branches of a union; of any other type that type alone."""
        return [self.definition(branch) for branch in (node if isinstance(node, list) else [node])]

    def text(self, root: Node = None) -> str:
        """`root` (by default the whole schema) as JSON text, each named type written out where it is first used."""
        return json.dumps(self._written_out(self.root if root is None else root, set()))

    def _written_out(self, node: Node, done: set[str]) -> Node:
        if isinstance(node, list):
            return [self._written_out(branch, done) for branch in node]
        found = self.definition(node)
        if not isinstance(found, dict):
            return found
        if kind_of(found) in NAMED:
            if found["name"] in done:
                return found["name"]
            done.add(found["name"])
        result = dict(found)
        for part in ("items", "values"):
            if part in found:
                result[part] = self._written_out(found[part], done)
        if "fields" in found:
            result["fields"] = [{**f, "type": self._written_out(f["type"], done)} for f in found["fields"]]
        return result


def load(text: str) -> Schema:
    """Read a schema (JSON text) without references to other files."""
    named: dict[str, dict[str, Any]] = {}
    return Schema(_qualified(json.loads(text), "", named), named)


def kind_of(node: Node) -> str:
    """record, string, ...: the type of a node without its logical type."""
    return str(node["type"]) if isinstance(node, dict) else "union" if isinstance(node, list) else str(node)


def _qualified(node: Node, namespace: str, named: dict[str, dict[str, Any]]) -> Node:
    if isinstance(node, str):
        full = f"{namespace}.{node}"
        return full if full in named else node
    if isinstance(node, list):
        return [_qualified(branch, namespace, named) for branch in node]
    kind = node["type"]
    if not isinstance(kind, str):
        return _qualified(kind, namespace, named)
    result = {key: value for key, value in node.items() if key != "namespace"}
    if kind in NAMED:
        name, space = str(node["name"]), str(node.get("namespace", namespace))
        result["name"] = name if "." in name or not space else f"{space}.{name}"
        if "." not in result["name"]:
            result["namespace"] = ""  # or it would take on that of the type around it
        namespace = result["name"].rpartition(".")[0]
        named[result["name"]] = result  # before its fields, which may refer to it
    if "fields" in node:
        result["fields"] = [{**f, "type": _qualified(f["type"], namespace, named)} for f in node["fields"]]
    for part in ("items", "values"):
        if part in node:
            result[part] = _qualified(node[part], namespace, named)
    is_name = kind not in (*NAMED, "array", "map") and not {kind, f"{namespace}.{kind}"}.isdisjoint(named)
    return _qualified(kind, namespace, named) if is_name else result


def adapted(writer: str, reader: str) -> str:
    """The writer's schema with the reader's names of types and fields, JSON text.

    Names are no part of what is written, but Avro's Java library reads no enum or fixed whose full name changed (as
    it does with the namespace of the record around it), and heeds the aliases of a field only in a record of the
    same name. What has no counterpart keeps its name.
    """
    write, read = load(writer), load(reader)
    fields: dict[tuple[str, str], str] = {}
    types: dict[str, str] = {}
    for written, wanted in _pairs(write, write.root, read, read.root, set()):
        types.setdefault(written["name"], wanted["name"])
        for new, old in _renamed(written, wanted):
            fields.setdefault((written["name"], old), new)
    return _Renaming(_without_clashes(types, write.named), fields).of(write)


class _Renaming:
    """Other full names for types, and other names for fields (by the old names of type and field)."""

    def __init__(self, types: Mapping[str, str], fields: Mapping[tuple[str, str], str]) -> None:
        self._types, self._fields = types, fields
        self._named: dict[str, dict[str, Any]] = {}

    def of(self, schema: Schema) -> str:
        return Schema(self._node(schema.root), self._named).text()

    def _node(self, node: Node) -> Node:
        if isinstance(node, list):
            return [self._node(branch) for branch in node]
        if isinstance(node, str):
            return self._types.get(node, node)
        result = dict(node)
        if kind_of(node) in NAMED:
            result["name"] = self._types.get(node["name"], node["name"])
            # Those of a writer say what it was called before, which no reader asks.
            result.pop("aliases", None)
            self._named[result["name"]] = result
        for part in ("items", "values"):
            if part in node:
                result[part] = self._node(node[part])
        if "fields" in node:
            result["fields"] = [self._field(node["name"], entry) for entry in node["fields"]]
        return result

    def _field(self, record: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in entry.items() if key != "aliases"}
        name = self._fields.get((record, entry["name"]), entry["name"])
        return {**kept, "name": name, "type": self._node(entry["type"])}


def _pairs(
    write: Schema, written: Node, read: Schema, wanted: Node, seen: set[tuple[str, str]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Named types of the writer with those of the reader that they are read as."""
    targets = read.branches(wanted)
    for branch in write.branches(written):
        target = _match(branch, targets)
        if target is None:
            continue
        kind = kind_of(branch)
        if kind in NAMED:
            pair = (branch["name"], target["name"])
            if pair in seen:
                continue
            seen.add(pair)
            yield branch, target
        if kind == "record":
            sources = {entry["name"]: entry["type"] for entry in branch["fields"]}
            for entry in target["fields"]:
                source = _source(entry, sources)
                if source is not None:
                    yield from _pairs(write, sources[source], read, entry["type"], seen)
        elif kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            yield from _pairs(write, branch[part], read, target[part], seen)


def _match(branch: Node, targets: list[Node]) -> Node:
    """The reader's branch of the same kind; of several named ones that of the same name, full or short."""
    same = [target for target in targets if kind_of(target) == kind_of(branch)]
    if kind_of(branch) in NAMED:
        name = str(branch["name"])
        same.sort(key=lambda target: (target["name"] != name, _short(target["name"]) != _short(name)))
    return next(iter(same), None)


def _source(entry: Mapping[str, Any], sources: Mapping[str, Node]) -> str | None:
    """The writer's field that a reader's field takes its value from."""
    return next((name for name in (entry["name"], *entry.get("aliases", ())) if name in sources), None)


def _renamed(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "fields" in written and "fields" in wanted:
        sources = {entry["name"]: entry["type"] for entry in written["fields"]}
        for entry in wanted["fields"]:
            source = _source(entry, sources)
            if source is not None and source != entry["name"]:
                yield entry["name"], source


def _without_clashes(types: Mapping[str, str], named: Mapping[str, Any]) -> dict[str, str]:
    """Renamings that do not give two types of the writer one name."""
    result: dict[str, str] = {}
    kept = set(named) - set(types)
    for old, new in types.items():
        if new not in kept and new not in result.values():
            result[old] = new
        else:
            kept.add(old)
    # Inside of a type with a namespace, one without could not be referred to.
    return {**result, **{name: f"outbox.{name}" for name in kept if "." not in name}}


def _short(name: str) -> str:
    return name.rpartition(".")[2]
