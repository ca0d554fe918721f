"""Detection of schema changes after which existing records cannot be read, or are read with different values.

Avro resolves fields by physical type alone: a long of milliseconds is read as a long of microseconds without an
error, and a registry calls the change compatible. Therefore this comparison includes logical types.
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
    """A field that the reader's schema declares differently from the writer's."""

    field: str
    written: str
    expected: str
    readable: bool
    """True: the bytes are read as a different value. False: they cannot be read."""


def differences(writer: str, reader: str) -> list[Difference]:
    """Return the fields written under `writer` that `reader` reads as a different value or not at all.

    Fields that are removed, or added with a default, are not differences.
    """
    comparison = _Comparison(load(writer), load(reader))
    return list(comparison.record_differences(comparison.writer.root, comparison.reader.root, ""))


def field_paths(schema: str) -> set[str]:
    """Return the paths of all fields of a record; a field of a nested record is `outer.inner`."""
    tree = load(schema)
    return set(_paths(tree, tree.root, "", ()))


def _paths(schema: Schema, node: Node, path: str, enclosing: tuple[str, ...]) -> Iterator[str]:
    for branch in schema.branches(node):
        kind = kind_of(branch)
        if kind == "record" and branch["name"] not in enclosing:
            for name, field_type in field_types(branch).items():
                yield f"{path}{name}"
                yield from _paths(schema, field_type, f"{path}{name}.", (*enclosing, branch["name"]))
        elif kind in ("array", "map"):
            yield from _paths(schema, branch["items" if kind == "array" else "values"], path, enclosing)


class _Comparison:
    """Parallel walk over the writer's and the reader's schema."""

    def __init__(self, writer: Schema, reader: Schema) -> None:
        self.writer, self.reader = writer, reader
        self._visited: set[tuple[str, str]] = set()

    def record_differences(self, writer: Node, reader: Node, path: str) -> Iterator[Difference]:
        if kind_of(writer) != "record" or kind_of(reader) != "record":
            return
        pair = (str(writer["name"]), str(reader["name"]))
        if pair in self._visited:  # a recursive type
            return
        self._visited.add(pair)
        written = field_types(writer)
        for field in reader["fields"]:
            source = source_field(field, written)
            if source is not None:
                yield from self._type_differences(written[source], field["type"], f"{path}{field['name']}")
            elif "default" not in field:
                expected = f"{_describe(self.reader.branches(field['type']))} without a default"
                yield Difference(f"{path}{field['name']}", "nothing", expected, readable=False)

    def _type_differences(self, writer: Node, reader: Node, path: str) -> Iterator[Difference]:
        for written in self.writer.branches(writer):
            branches = self.reader.branches(reader)
            expected = _resolve(written, branches)
            if expected is None:
                yield Difference(path, _describe([written]), _describe(branches), readable=False)
                continue
            written_as, read_as = _logical_type(written), _logical_type(expected)
            if written_as != read_as:
                yield Difference(path, written_as or kind_of(written), read_as or kind_of(expected), readable=True)
            elif not _has_all_values(written, expected):
                yield Difference(path, _describe([written]), f"a different {_describe([expected])}", readable=False)
            elif kind_of(written) == "record":
                yield from self.record_differences(written, expected, f"{path}.")
            elif kind_of(written) == "array":
                yield from self._type_differences(written["items"], expected["items"], f"{path}[]")
            elif kind_of(written) == "map":
                yield from self._type_differences(written["values"], expected["values"], f"{path}{{}}")


def _resolve(written: Node, branches: list[Node]) -> Node:
    """Return the reader's branch that Avro selects: same name, else same kind, else a promotion."""
    promoted = [branch for branch in branches if kind_of(branch) in _PROMOTIONS.get(kind_of(written), ())]
    return next(iter([*same_kind(written, branches), *promoted]), None)


def _has_all_values(written: Node, expected: Node) -> bool:
    """Return whether the reader's enum or fixed type can represent every value of the writer's."""
    if kind_of(written) == "enum" and kind_of(expected) == "enum":
        return "default" in expected or set(written["symbols"]) <= set(expected["symbols"])
    if kind_of(written) == "fixed" and kind_of(expected) == "fixed":
        return bool(written["size"] == expected["size"])
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
