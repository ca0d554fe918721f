"""Look up the JSON Schema for a location in a file, to describe errors and to parse overrides."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel

from outbox_kit.pipeline.values_with_origins import Location, child_value

Node = dict[str, Any]
"""JSON Schema of a value. $ref is resolved, and null is removed from anyOf."""


@cache
def _json_schema(model: type[BaseModel]) -> Node:
    return model.model_json_schema()


def node_at(model: type[BaseModel], data: Any, location: Location) -> Node | None:  # noqa: ANN401 - YAML data
    """Return the schema at `location`, or None if there is no schema. `kind` in `data` selects a union's member."""
    root = _json_schema(model)
    node = _resolved(root, root, data)
    for key in location:
        data = child_value(data, key)
        child = node.get("items") if isinstance(key, int) else node.get("properties", {}).get(key, value_schema(node))
        if child is None:
            return None
        node = _resolved(child, root, data)
    return node


def value_schema(node: Node) -> Node | None:
    """Return the schema of the values of a mapping with user-defined keys, or None if the keys are fixed."""
    patterns = node.get("patternProperties")
    if patterns:
        return dict(next(iter(patterns.values())))
    values = node.get("additionalProperties")
    return values if isinstance(values, dict) else None


def maps_to_scalars(node: Node) -> bool:
    """Return whether the schema is a mapping from user-defined keys, which can contain dots, to scalars."""
    values = value_schema(node)
    return values is not None and "$ref" not in values and "oneOf" not in values


def _resolved(node: Node, root: Node, data: Any) -> Node:  # noqa: ANN401 - YAML data
    """Resolve $ref, remove null from anyOf, and select the member of a union by its discriminator in `data`."""
    if "$ref" in node:
        target: Node = root["$defs"][node["$ref"].rsplit("/", 1)[-1]]
        return _resolved(target, root, data)
    if "anyOf" in node:
        member = next(member for member in node["anyOf"] if member.get("type") != "null")
        is_list_accepted = any(member.get("type") == "array" for member in node["anyOf"])
        return {**_resolved(member, root, data), "nullable": True, "is_list_accepted": is_list_accepted}
    if "discriminator" in node:
        key, mapping = node["discriminator"]["propertyName"], node["discriminator"]["mapping"]
        value = child_value(data, key)
        reference = mapping.get(value) if isinstance(value, str) else None
        if reference:
            return _resolved({"$ref": reference}, root, data)
        members = [_resolved(member, root, data)["properties"] for member in node["oneOf"]]
        return {"type": "object", "properties": {key: properties[key] for properties in members for key in properties}}
    return node
