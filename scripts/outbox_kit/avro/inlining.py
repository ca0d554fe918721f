"""One text of a schema and the types that it takes from others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

NAMED = frozenset({"record", "enum", "fixed"})


def inline(text: str, references: Sequence[str]) -> str:
    """`text` with the types of `references` (in dependency order) written out where they are first used."""
    if not references:
        return text
    # Here, because most schemas have no references: a driver that meets none needs no fastavro.
    from fastavro.schema import parse_schema  # noqa: PLC0415

    types: dict[str, Any] = {}
    for reference in references:
        parse_schema(json.loads(reference), types)
    parsed = parse_schema(json.loads(text), types)
    return compact(_written_out(parsed, types, set()))


def _written_out(node: Any, types: dict[str, Any], done: set[str]) -> Any:  # noqa: ANN401 - any part of a schema
    """A parsed schema (full names) in which each type stands at its first use, in the order of reading.

    fastavro's own load_schema_ordered writes a type out whole where a file defines several: twice, or too late.
    """
    if isinstance(node, list):
        return [_written_out(item, types, done) for item in node]
    if isinstance(node, str):
        return node if node in done or node not in types else _written_out(types[node], types, done)
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if not key.startswith("__")}
    kind = node.get("type")
    if not isinstance(kind, str) or kind not in NAMED:  # a field, an array, a map, a primitive type with more
        for key in {"array": ["items"], "map": ["values"]}.get(str(kind), ["type"]):
            kept[key] = _written_out(node[key], types, done)
        return kept
    if node["name"] in done:
        return node["name"]
    done.add(node["name"])
    kept.pop("namespace", None)  # the name is a full one
    if "fields" in node:
        kept["fields"] = [_written_out(field, types, done) for field in node["fields"]]
    return kept


def compact(definition: Any) -> str:  # noqa: ANN401 - any schema
    """The one text form: no white space, letters as written."""
    return json.dumps(definition, separators=(",", ":"), ensure_ascii=False)
