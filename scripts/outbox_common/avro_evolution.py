"""Detect schema changes after which existing records cannot be read or are read with different values.

Avro resolves fields only by physical type. It reads a long of milliseconds as a long of microseconds without an error,
and registries accept such a change as compatible. Therefore this module also compares logical types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outbox_events.schemas.avro_schema import (
    NAMED_TYPES,
    Node,
    Schema,
    field_types,
    kind_of,
    load,
    same_kind,
    source_field,
)

_PROMOTIONS: Mapping[str, frozenset[str]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


@dataclass(frozen=True)
class Difference:
    """A field that the reader misreads, or cannot read, in records that have the writer's schema."""

    field: str
    written: str  # type in the writer's schema
    expected: str  # type in the reader's schema
    readable: bool
    """True if the field is read as a different value. False if the field cannot be read."""


def differences(writer_schema: str, reader_schema: str) -> list[Difference]:
    """Return the fields that are misread or cannot be read when records of `writer_schema` are read by `reader_schema`.

    A field that the reader's schema lacks, or adds with a default, is not a difference.
    """
    comparison = _Comparison(load(writer_schema), load(reader_schema))
    return list(comparison.record_differences(comparison.writer_schema.root, comparison.reader_schema.root, ""))


def field_paths(schema: str) -> set[str]:
    """Return the path of each field in a record schema (JSON text). The path of a nested field is `outer.inner`."""
    tree = load(schema)
    return set(_paths(tree, tree.root, "", ()))


def _paths(schema: Schema, node: Node, path: str, enclosing_names: tuple[str, ...]) -> Iterator[str]:
    for branch in schema.branches(node):
        kind = kind_of(branch)
        if kind == "record" and branch["name"] not in enclosing_names:
            for name, field_type in field_types(branch).items():
                yield f"{path}{name}"
                yield from _paths(schema, field_type, f"{path}{name}.", (*enclosing_names, branch["name"]))
        elif kind in ("array", "map"):
            yield from _paths(schema, branch["items" if kind == "array" else "values"], path, enclosing_names)


class _Comparison:
    """Compares the writer's and the reader's schema by walking over both in parallel."""

    def __init__(self, writer_schema: Schema, reader_schema: Schema) -> None:
        self.writer_schema, self.reader_schema = writer_schema, reader_schema
        self._compared_types: set[tuple[str, str]] = set()

    def record_differences(self, writer_type: Node, reader_type: Node, path: str) -> Iterator[Difference]:
        if kind_of(writer_type) != "record" or kind_of(reader_type) != "record":
            return
        name_pair = (str(writer_type["name"]), str(reader_type["name"]))
        if name_pair in self._compared_types:  # already compared: a type can be recursive or occur twice
            return
        self._compared_types.add(name_pair)
        writer_fields = field_types(writer_type)
        for field in reader_type["fields"]:
            source_name = source_field(field, writer_fields)
            if source_name is not None:
                yield from self._type_differences(writer_fields[source_name], field["type"], f"{path}{field['name']}")
            elif "default" not in field:
                expected = f"{_type_names(self.reader_schema.branches(field['type']))} without a default"
                yield Difference(f"{path}{field['name']}", "nothing", expected, readable=False)

    def _type_differences(self, writer_type: Node, reader_type: Node, path: str) -> Iterator[Difference]:
        for branch in self.writer_schema.branches(writer_type):
            reader_branches = self.reader_schema.branches(reader_type)
            match = _resolve(branch, reader_branches)
            if match is None:
                yield Difference(path, _type_names([branch]), _type_names(reader_branches), readable=False)
                continue
            written_type, read_type = _logical_type(branch), _logical_type(match)
            if written_type != read_type:
                yield Difference(path, written_type or kind_of(branch), read_type or kind_of(match), readable=True)
            elif not _has_all_values(branch, match):
                yield Difference(path, _type_names([branch]), f"a different {_type_names([match])}", readable=False)
            elif kind_of(branch) == "record":
                yield from self.record_differences(branch, match, f"{path}.")
            elif kind_of(branch) == "array":
                yield from self._type_differences(branch["items"], match["items"], f"{path}[]")
            elif kind_of(branch) == "map":
                yield from self._type_differences(branch["values"], match["values"], f"{path}{{}}")


def _resolve(writer_type: Node, reader_branches: list[Node]) -> Node:
    """Return the branch that Avro selects by name, then kind, then type promotion. Return None if no branch matches."""
    promoted_types = _PROMOTIONS.get(kind_of(writer_type), ())
    promoted_branches = [branch for branch in reader_branches if kind_of(branch) in promoted_types]
    return next(iter([*same_kind(writer_type, reader_branches), *promoted_branches]), None)


def _has_all_values(writer_type: Node, reader_type: Node) -> bool:
    """Return False if the writer's enum or fixed type has values that the reader's type cannot hold, or else True."""
    if kind_of(writer_type) == "enum" and kind_of(reader_type) == "enum":
        return "default" in reader_type or set(writer_type["symbols"]) <= set(reader_type["symbols"])
    if kind_of(writer_type) == "fixed" and kind_of(reader_type) == "fixed":
        return bool(writer_type["size"] == reader_type["size"])
    return True


def _type_names(branches: list[Any]) -> str:
    return " or ".join(str(node["name"]) if kind_of(node) in NAMED_TYPES else kind_of(node) for node in branches)


def _logical_type(node: Node) -> str:
    """Return the logical type if it changes the meaning of the value, or else an empty string.

    `uuid` and all logical types of strings are ignored. The result for a decimal contains only its scale.
    """
    if not isinstance(node, dict) or node["type"] == "string":
        return ""
    logical_type = str(node.get("logicalType", ""))
    if logical_type == "decimal":
        return f"decimal of scale {int(node.get('scale', 0))}"
    return "" if logical_type == "uuid" else logical_type
