"""Find Avro unions in which a JSON value can fit two branches.

The transform writes the first branch that accepts the value, as docs/smt-payloads.md describes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

from fastavro.schema import parse_schema

INTEGERS = frozenset({"int", "long"})
NUMBERS = INTEGERS | {"float", "double", "decimal", "big-decimal"}
# Form of the JSON strings that a type accepts. Two forms share strings only if one is `any` or FORM_PAIRS lists both.
TEXT_FORMS = {
    "string": "any",
    "enum": "symbol",
    "uuid": "uuid",
    "bytes": "base64",
    "fixed": "base64",
    "decimal": "digits",
    "big-decimal": "digits",
    "date": "date",
    "time-millis": "time",
    "time-micros": "time",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "timestamp-nanos": "timestamp",
    "local-timestamp-millis": "local",
    "local-timestamp-micros": "local",
    "local-timestamp-nanos": "local",
}
FORM_PAIRS = ({"base64", "symbol"}, {"base64", "digits"})


class Ambiguity(NamedTuple):
    """Two union branches that accept the same JSON value. `location` is the field, as RECORD.FIELD."""

    location: str
    first: str
    second: str


def find_ambiguities(schema: str) -> list[Ambiguity]:
    """Return the pairs of union branches in a record that accept the same JSON value but represent it differently.

    Raises a fastavro exception if the schema is invalid.
    """
    types: dict[str, Any] = {}
    parse_schema(json.loads(schema), types)
    branches = _Branches(types)
    return [
        Ambiguity(location, _describe(first), _describe(second))
        for definition in types.values()
        for field in definition.get("fields", ())
        for location, union in _unions(field["type"], f"{definition['name']}.{field['name']}")
        for first, second in combinations(map(branches.resolve, union), 2)
        if not _represents_equally(first, second) and branches.have_common_value(first, second)
    ]


def _unions(node: Any, location: str) -> Iterator[tuple[str, list[Any]]]:  # noqa: ANN401 - any schema
    """Yield each union in a type with the union's location, except for unions in nested records."""
    if isinstance(node, list):
        yield location, node
        for branch in node:
            yield from _unions(branch, location)
    elif isinstance(node, dict):
        for key in ("items", "values"):
            yield from _unions(node.get(key), location)


def _kind(node: Any) -> str:  # noqa: ANN401 - any schema but a union
    """Return the logical type if it determines the accepted JSON values, otherwise the type."""
    if isinstance(node, str):
        return node
    logical_type = node.get("logicalType")
    return str(logical_type if logical_type in TEXT_FORMS else node["type"])


def _describe(node: Any) -> str:  # noqa: ANN401 - any schema but a union
    return f"{node['type']} {node['name']}" if isinstance(node, dict) and "name" in node else _kind(node)


def _represents_equally(first: Any, second: Any) -> bool:  # noqa: ANN401 - any schema but a union
    """Return whether the first branch preserves the values that both branches accept."""
    kinds = (_kind(first), _kind(second))
    if (kinds[0] in INTEGERS and kinds[1] in NUMBERS) or kinds == ("double", "float"):
        return True
    types = [node if isinstance(node, str) else node["type"] for node in (first, second)]
    return "string" in types and set(types) <= {"string", "enum"}


def _accepts_numbers(kind: str) -> bool:
    return kind in NUMBERS or TEXT_FORMS.get(kind) in ("date", "time", "timestamp", "local")


def _member_type(node: dict[str, Any], name: str) -> Any:  # noqa: ANN401 - any schema
    """Return the type of a record's field or of a map's values, or an empty union if the record lacks the field."""
    if node["type"] == "map":
        return node["values"]
    return next((field["type"] for field in node["fields"] if field["name"] == name), [])


class _Branches:
    """Compares types. `types` maps each full name to the schema's type with this name."""

    def __init__(self, types: dict[str, Any]) -> None:
        self._types = types
        # Results are stored by identity, because maps do not have a name. Each pair of types is compared only once.
        self._results: dict[tuple[int, int], bool] = {}

    def resolve(self, node: Any) -> Any:  # noqa: ANN401 - any schema
        return self._types.get(node, node) if isinstance(node, str) else node

    def have_common_value(self, first: Any, second: Any) -> bool:  # noqa: ANN401 - any schema
        """Return whether a JSON value exists that both types accept."""
        first, second = self.resolve(first), self.resolve(second)
        if isinstance(first, list):
            return any(self.have_common_value(branch, second) for branch in first)
        if isinstance(second, list):
            return self.have_common_value(second, first)
        kinds = {_kind(first), _kind(second)}
        if kinds <= {"record", "map"}:
            return self._have_common_object(first, second)
        if kinds == {"enum"}:
            return not set(first["symbols"]).isdisjoint(second["symbols"])
        if len(kinds) == 1 or all(map(_accepts_numbers, kinds)):
            return True
        forms = {TEXT_FORMS[kind] for kind in kinds & TEXT_FORMS.keys()}
        return kinds <= TEXT_FORMS.keys() and (len(forms) == 1 or "any" in forms or forms in FORM_PAIRS)

    def _have_common_object(self, first: Any, second: Any) -> bool:  # noqa: ANN401 - a record or map
        """Return whether an object can have the required fields of both types, and only fields that both types have."""
        pair = (id(first), id(second))
        if pair not in self._results:
            # If a record contains itself, the other fields determine the result.
            self._results[pair] = True
            self._results[pair] = all(
                self.have_common_value(field["type"], _member_type(other, field["name"]))
                for record, other in ((first, second), (second, first))
                for field in record.get("fields", ())
                if "default" not in field
            )
        return self._results[pair]
