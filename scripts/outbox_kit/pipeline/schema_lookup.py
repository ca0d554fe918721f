"""What a model allows at a place in its file: asked by errors, by `--set` and by environment variables."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel

from outbox_kit.pipeline.layered_values import Location

Node = dict[str, Any]
"""A JSON Schema, $ref and null resolved."""


@cache
def _schema(model: type[BaseModel]) -> Node:
    return model.model_json_schema()


def walk(model: type[BaseModel], data: Any, location: Location) -> Iterator[Node | None]:  # noqa: ANN401 - YAML data
    """The schema at the top level and at every step to `location`; None from where the model ends.

    `data` tells which of several models applies (a target's `kind`).
    """
    root = _schema(model)
    node: Node | None = _resolved(root, root, data)
    yield node
    for part in location:
        data = _child(data, part)
        found = None if node is None else below(node, part)
        node = None if found is None else _resolved(found, root, data)
        yield node


def at(model: type[BaseModel], data: Any, location: Location) -> Node | None:  # noqa: ANN401 - YAML data
    """The schema at `location`, None where the model has none."""
    *_, node = walk(model, data, location)
    return node


def below(node: Node, part: str | int) -> Node | None:
    """The schema of one key or item, $ref not resolved."""
    if isinstance(part, int):
        items: Node | None = node.get("items")
        return items
    found: Node | None = node.get("properties", {}).get(part)
    return found if found is not None else free(node)


def free(node: Node) -> Node | None:
    """The schema of the values of a mapping whose keys are the user's own; None where keys are given."""
    patterns = node.get("patternProperties")
    if patterns:
        return dict(next(iter(patterns.values())))
    values = node.get("additionalProperties")
    return values if isinstance(values, dict) else None


def holds_values(node: Node) -> bool:
    """Whether this is a mapping of free keys to plain values: there, a key may have dots."""
    values = free(node)
    return values is not None and "$ref" not in values and "oneOf" not in values


def is_text(node: Node | None) -> bool:
    """Whether only text is allowed here: it is then taken as it stands, never read as YAML."""
    return node is not None and node.get("type") == "string"


def is_secret(node: Node | None) -> bool:
    """Whether the model itself hides what stands here."""
    return node is not None and node.get("format") == "password"


def _child(data: Any, part: str | int) -> Any:  # noqa: ANN401 - YAML data
    try:
        return data[part]
    except (KeyError, IndexError, TypeError):
        return None


def _resolved(node: Node, root: Node, data: Any) -> Node:  # noqa: ANN401 - YAML data
    """`node` without $ref; of several, the one that is not null, or that `data` chooses."""
    if "$ref" in node:
        target: Node = root["$defs"][node["$ref"].rsplit("/", 1)[-1]]
        return _resolved(target, root, data)
    if "anyOf" in node:
        chosen = next(each for each in node["anyOf"] if each.get("type") != "null")
        return {**_resolved(chosen, root, data), "nullable": True}
    if "discriminator" in node:
        key, mapping = node["discriminator"]["propertyName"], node["discriminator"]["mapping"]
        value = _child(data, key)
        chosen = mapping.get(value) if isinstance(value, str) else None
        if chosen:
            return _resolved({"$ref": chosen}, root, data)
        properties = [_resolved(each, root, data)["properties"] for each in node["oneOf"]]
        return {"type": "object", "properties": {key: each[key] for each in properties for key in each}}
    return node
