"""Types of fields that no column of a materialized table can have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from outbox_common.avro_schema import Node, Schema, kind_of

MAX_DECIMAL_DIGITS = 38
"""Maximum precision of a decimal in Spark."""


def unsupported_type(schema: Schema, node: Node, enclosing: frozenset[str]) -> str | None:
    """Return what prevents a column from having this type, as text; None if nothing does.

    `enclosing` are the full names of the records that contain the field.
    """
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
    problems = (unsupported_type(schema, part, enclosing) for part in parts)
    return next((problem for problem in problems if problem is not None), None)


def _decimal_digits(definition: Mapping[str, Any]) -> int:
    # As Avro specifies, a logical type of another type is ignored.
    is_decimal = definition.get("logicalType") == "decimal" and kind_of(definition) in ("bytes", "fixed")
    return int(definition.get("precision", 0)) if is_decimal else 0


def _record_problem(definition: Node, enclosing: frozenset[str]) -> str | None:
    if definition["name"] in enclosing:
        return f"the record {definition['name']} contains itself"
    # Names of struct fields are case-insensitive in Spark and the lake formats.
    counts = Counter(str(field["name"]).lower() for field in definition["fields"])
    for field in definition["fields"]:
        if counts[str(field["name"]).lower()] > 1:
            return f"the field {field['name']} of its record {definition['name']} differs from another only in case"
    return None
