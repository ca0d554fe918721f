"""Types of fields that no column of a materialized table can have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from outbox_common.avro_schema import Node, Schema, kind_of
from outbox_common.column_names import ambiguous_names

MAX_DECIMAL_DIGITS = 38
"""Maximum precision of a decimal in Spark."""


def unsupported_fields(schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield the name of each field of a record schema that no column can have, and the reason as text."""
    for field in schema.root["fields"]:
        problem = _type_problem(schema, field["type"], frozenset({schema.root["name"]}))
        if problem is not None:
            yield str(field["name"]), problem


def _type_problem(schema: Schema, node: Node, enclosing: frozenset[str]) -> str | None:
    """Return what prevents a column from having this type; `enclosing` are the full names of the outer records."""
    definition = schema.definition(node)
    if isinstance(definition, list):
        parts = definition
    elif not isinstance(definition, dict):
        return None
    elif kind_of(definition) == "record":
        problem = _record_problem(definition, enclosing)
        if problem is not None:
            return problem
        enclosing |= {definition["name"]}
        parts = [field["type"] for field in definition["fields"]]
    elif _decimal_digits(definition) > MAX_DECIMAL_DIGITS:
        return f"it is a decimal of {definition['precision']} digits; the maximum is {MAX_DECIMAL_DIGITS}"
    else:
        parts = [definition[key] for key in ("items", "values") if key in definition]
    problems = (_type_problem(schema, part, enclosing) for part in parts)
    return next((problem for problem in problems if problem is not None), None)


def _decimal_digits(definition: Mapping[str, Any]) -> int:
    # As Avro specifies, a logical type of another type is ignored.
    is_decimal = definition.get("logicalType") == "decimal" and kind_of(definition) in ("bytes", "fixed")
    return int(definition.get("precision", 0)) if is_decimal else 0


def _record_problem(definition: Node, enclosing: frozenset[str]) -> str | None:
    if definition["name"] in enclosing:
        return f"the record {definition['name']} contains itself"
    # Names of struct fields are case-insensitive in Spark and the lake formats.
    ambiguous = ambiguous_names(definition["fields"])
    if ambiguous:
        return f"the field {ambiguous[0]} of its record {definition['name']} differs from another only in case"
    return None
