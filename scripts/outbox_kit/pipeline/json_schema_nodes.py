"""Lookup of the JSON Schema at a location of a file, for errors and overrides."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel

from outbox_kit.pipeline.layered_values import Location, child

Node = dict[str, Any]
"""A JSON Schema without $ref and null."""


@cache
def _schema(model: type[BaseModel]) -> Node:
    return model.model_json_schema()


def at(model: type[BaseModel], data: Any, location: Location) -> Node | None:  # noqa: ANN401 - YAML data
    """Return the schema at `location`, or None; `data` determines which of several models applies (by `kind`)."""
    root = _schema(model)
    node = _resolved(root, root, data)
    for key in location:
        data = child(data, key)
        below = node.get("items") if isinstance(key, int) else node.get("properties", {}).get(key, free(node))
        if below is None:
            return None
        node = _resolved(below, root, data)
    return node


def free(node: Node) -> Node | None:
    """Return the schema of the values of a mapping with user-defined keys; None for a mapping with fixed keys."""
    patterns = node.get("patternProperties")
    if patterns:
        return dict(next(iter(patterns.values())))
    values = node.get("additionalProperties")
    return values if isinstance(values, dict) else None


def holds_values(node: Node) -> bool:
    """Return whether this is a mapping of user-defined keys to scalars, whose keys may contain dots."""
    values = free(node)
    return values is not None and "$ref" not in values and "oneOf" not in values


def _resolved(node: Node, root: Node, data: Any) -> Node:  # noqa: ANN401 - YAML data
    """Resolve $ref, anyOf with null, and a union by its discriminator in `data`."""
    if "$ref" in node:
        target: Node = root["$defs"][node["$ref"].rsplit("/", 1)[-1]]
        return _resolved(target, root, data)
    if "anyOf" in node:
        member = next(member for member in node["anyOf"] if member.get("type") != "null")
        return {**_resolved(member, root, data), "nullable": True}
    if "discriminator" in node:
        key, mapping = node["discriminator"]["propertyName"], node["discriminator"]["mapping"]
        value = child(data, key)
        reference = mapping.get(value) if isinstance(value, str) else None
        if reference:
            return _resolved({"$ref": reference}, root, data)
        members = [_resolved(member, root, data)["properties"] for member in node["oneOf"]]
        return {"type": "object", "properties": {key: properties[key] for properties in members for key in properties}}
    return node
