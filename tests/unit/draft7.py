"""JSON Schema validator for the keywords in the editors' schemas. An unknown keyword is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
ANNOTATIONS = {"$schema", "$defs", "description", "default", "format"}
OBJECTS = {"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties"}
HANDLED = ANNOTATIONS | OBJECTS | {"if", "then", "else"}


def errors(schema: dict[str, Any], value: Any, root: dict[str, Any], where: str = "") -> Iterator[str]:  # noqa: ANN401
    """Return the locations and keywords at which `value` violates the schema."""
    for keyword, rule in schema.items():
        if keyword in HANDLED:
            continue
        if keyword == "items":
            for index, item in enumerate(value if isinstance(value, list) else []):
                yield from errors(rule, item, root, f"{where}.{index}")
        elif keyword == "$ref":
            yield from errors(root["$defs"][rule.removeprefix("#/$defs/")], value, root, where)
        elif keyword in ("anyOf", "oneOf", "allOf"):
            passed = sum(not list(errors(each, value, root)) for each in rule)
            if not {"anyOf": passed >= 1, "oneOf": passed == 1, "allOf": passed == len(rule)}[keyword]:
                details = [actual for each in rule for actual in errors(each, value, root, where)]
                yield from details if len(rule) == 1 else [f"{where} {keyword}"]
        elif not _holds(keyword, rule, value):
            yield f"{where} {keyword}"
    if isinstance(value, dict):
        yield from _of_object(schema, value, root, where)
    yield from _of_branch(schema, value, root, where)


def _of_branch(schema: dict[str, Any], value: Any, root: dict[str, Any], where: str) -> Iterator[str]:  # noqa: ANN401
    if "if" in schema:
        branch = "else" if any(errors(schema["if"], value, root)) else "then"
        yield from errors(schema.get(branch, {}), value, root, where)


def _holds(keyword: str, rule: Any, value: Any) -> bool:  # noqa: ANN401
    if keyword == "type":
        return isinstance(value, TYPES[rule]) and (rule == "boolean" or not isinstance(value, bool))
    if keyword in ("enum", "const"):
        return bool(value in rule if keyword == "enum" else value == rule)
    if isinstance(value, str):
        tests = {"pattern": lambda: re.search(rule, value) is not None, "minLength": lambda: len(value) >= rule}
        tests |= {"maxLength": lambda: len(value) <= rule, "minimum": lambda: True, "maximum": lambda: True}
        return tests[keyword]()
    bounds = {"minimum": lambda: value >= rule, "maximum": lambda: value <= rule}
    return not isinstance(value, int | float) or keyword not in bounds or bounds[keyword]()


def _of_object(schema: dict[str, Any], value: dict[str, Any], root: dict[str, Any], where: str) -> Iterator[str]:
    yield from (f"{where}.{key} required" for key in schema.get("required", []) if key not in value)
    if len(value) < schema.get("minProperties", 0):
        yield f"{where} minProperties"
    for key, item in value.items():
        yield from errors(schema.get("propertyNames", {}), key, root, f"{where}.{key}")
        rules = [rule for pattern, rule in schema.get("patternProperties", {}).items() if re.search(pattern, key)]
        rules += [schema["properties"][key]] if key in schema.get("properties", {}) else []
        other = schema.get("additionalProperties", True)
        if not rules and other is False:
            yield f"{where}.{key} unknown"
        for rule in rules or ([other] if isinstance(other, dict) else []):
            yield from errors(rule, item, root, f"{where}.{key}")
