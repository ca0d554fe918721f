"""Detection of schema changes after which existing records cannot be read, or are read with different values.

Avro resolves fields by physical type alone: a long of milliseconds is read as a long of microseconds without an
error, and a registry accepts the change as compatible. Therefore this comparison includes logical types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outbox_common.avro_schema import NAMED_TYPES, Node, Schema, field_types, kind_of, load, same_kind, source_field

_PROMOTIONS: Mapping[str, frozenset[str]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


@dataclass(frozen=True)
class Difference:
    """A field that the reader's schema declares differently from the writer's schema."""

    field: str
    written: str
    expected: str
    readable: bool
    """True: the bytes are read as a different value. False: they cannot be read."""


def differences(writer_schema: str, reader_schema: str) -> list[Difference]:
    """Return the fields of records of `writer_schema` that `reader_schema` reads as a different value or not at all.

    Fields that the reader's schema removes, or adds with a default, are not differences.
    """
    comparison = _Comparison(load(writer_schema), load(reader_schema))
    return list(comparison.record_differences(comparison.writer_schema.root, comparison.reader_schema.root, ""))


def field_paths(schema: str) -> set[str]:
    """Return the paths of all fields of a record; a field of a nested record is `outer.inner`."""
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
    """Parallel walk over the writer's and the reader's schema."""

    def __init__(self, writer_schema: Schema, reader_schema: Schema) -> None:
        self.writer_schema, self.reader_schema = writer_schema, reader_schema
        self._visited: set[tuple[str, str]] = set()

    def record_differences(self, writer_type: Node, reader_type: Node, path: str) -> Iterator[Difference]:
        if kind_of(writer_type) != "record" or kind_of(reader_type) != "record":
            return
        pair = (str(writer_type["name"]), str(reader_type["name"]))
        if pair in self._visited:  # a recursive type
            return
        self._visited.add(pair)
        written_types = field_types(writer_type)
        for field in reader_type["fields"]:
            source = source_field(field, written_types)
            if source is not None:
                yield from self._type_differences(written_types[source], field["type"], f"{path}{field['name']}")
            elif "default" not in field:
                expected = f"{_describe(self.reader_schema.branches(field['type']))} without a default"
                yield Difference(f"{path}{field['name']}", "nothing", expected, readable=False)

    def _type_differences(self, writer_type: Node, reader_type: Node, path: str) -> Iterator[Difference]:
        for branch in self.writer_schema.branches(writer_type):
            reader_branches = self.reader_schema.branches(reader_type)
            match = _resolve(branch, reader_branches)
            if match is None:
                yield Difference(path, _describe([branch]), _describe(reader_branches), readable=False)
                continue
            written_as, read_as = _logical_type(branch), _logical_type(match)
            if written_as != read_as:
                yield Difference(path, written_as or kind_of(branch), read_as or kind_of(match), readable=True)
            elif not _has_all_values(branch, match):
                yield Difference(path, _describe([branch]), f"a different {_describe([match])}", readable=False)
            elif kind_of(branch) == "record":
                yield from self.record_differences(branch, match, f"{path}.")
            elif kind_of(branch) == "array":
                yield from self._type_differences(branch["items"], match["items"], f"{path}[]")
            elif kind_of(branch) == "map":
                yield from self._type_differences(branch["values"], match["values"], f"{path}{{}}")


def _resolve(written_type: Node, branches: list[Node]) -> Node:
    """Return the reader's branch that Avro selects: the same name, else the same kind, else a promotion; else None."""
    promoted = [branch for branch in branches if kind_of(branch) in _PROMOTIONS.get(kind_of(written_type), ())]
    return next(iter([*same_kind(written_type, branches), *promoted]), None)


def _has_all_values(written_type: Node, read_type: Node) -> bool:
    """Return whether the reader's enum or fixed type can represent every value of the writer's type."""
    if kind_of(written_type) == "enum" and kind_of(read_type) == "enum":
        return "default" in read_type or set(written_type["symbols"]) <= set(read_type["symbols"])
    if kind_of(written_type) == "fixed" and kind_of(read_type) == "fixed":
        return bool(written_type["size"] == read_type["size"])
    return True


def _describe(branches: list[Any]) -> str:
    return " or ".join(
        str(branch["name"]) if isinstance(branch, dict) and kind_of(branch) in NAMED_TYPES else kind_of(branch)
        for branch in branches
    )


def _logical_type(node: Node) -> str:
    """Return the logical type if it changes the meaning of the value, else the empty string.

    Logical types of strings and uuids are ignored; of a decimal only the scale is compared.
    """
    if not isinstance(node, dict) or node["type"] == "string":
        return ""
    logical = str(node.get("logicalType", ""))
    if logical == "decimal":
        return f"decimal of scale {int(node.get('scale', 0))}"
    return "" if logical == "uuid" else logical
