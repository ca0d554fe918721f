"""JSON Schemas of the pipeline and environment files, for editors: completion, descriptions, errors while typing."""

from __future__ import annotations

from typing import Any

from outbox_kit.pipeline.environment import Environment
from outbox_kit.pipeline.model import Pipeline

DRAFT = "http://json-schema.org/draft-07/schema#"  # what yaml-language-server has supported for longest
OVERLAY = "PipelineOverlay"
EXPRESSION = {
    "type": "string",
    "pattern": r"\{\{",
    "description": "{{ env.NAME }}, or {{ stack.NAME }} of the running embedded stack.",
}
Node = dict[str, Any]


def pipeline_schema() -> Node:
    """Of a pipeline file."""
    return {"$schema": DRAFT, **_for_editors(Pipeline.model_json_schema())}


def environment_schema() -> Node:
    """Of an environment file; every value may be an expression, and `pipeline:` any part of a pipeline file."""
    schema = _for_editors(_with_expressions(Environment.model_json_schema()))
    overlay = _partial(_for_editors(Pipeline.model_json_schema()))
    definitions = overlay.pop("$defs")
    schema["$defs"] |= {**definitions, OVERLAY: overlay}
    described = schema["properties"]["pipeline"]["description"]
    schema["properties"]["pipeline"] = {"allOf": [{"$ref": f"#/$defs/{OVERLAY}"}], "description": described}
    return {"$schema": DRAFT, **schema}


def _for_editors(node: Any) -> Any:  # noqa: ANN401 - any part of a schema
    """Without pydantic's titles and OpenAPI's words; a $ref with neighbours as draft 7 wants it."""
    if isinstance(node, list):
        return [_for_editors(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if key not in ("title", "discriminator", "writeOnly")}
    if "$ref" in kept and len(kept) > 1:
        kept["allOf"] = [{"$ref": kept.pop("$ref")}]
    return {
        key: {name: _for_editors(each) for name, each in value.items()}
        if key in ("properties", "patternProperties", "$defs")
        else value
        if key in ("default", "enum", "required")
        else _for_editors(value)
        for key, value in kept.items()
    }


def _with_expressions(node: Any) -> Any:  # noqa: ANN401 - any part of a schema
    """Every plain value may also be an expression, whatever it must be once that is filled in."""
    if isinstance(node, list):
        return [_with_expressions(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") in ("integer", "number", "boolean") or {"pattern", "enum"} & node.keys():
        described = {key: node[key] for key in ("description", "default") if key in node}
        plain = {key: value for key, value in node.items() if key not in described}
        return {"anyOf": [plain, EXPRESSION], **described}
    return {
        key: {name: _with_expressions(each) for name, each in value.items()}
        if key in ("properties", "$defs")
        else _with_expressions(value)
        for key, value in node.items()
    }


def _partial(node: Any) -> Any:  # noqa: ANN401 - any part of a schema
    """Nothing required, definitions under names that the environment's do not have."""
    if isinstance(node, list):
        return [_partial(item) for item in node]
    if not isinstance(node, dict):
        return node
    partial: Node = {}
    for key, value in node.items():
        if key == "$defs":
            partial[key] = {f"{OVERLAY}{name}": _partial(each) for name, each in value.items()}
        elif key == "properties":
            partial[key] = {name: _partial(each) for name, each in value.items()}
        elif key == "$ref":
            partial[key] = value.replace("#/$defs/", f"#/$defs/{OVERLAY}")
        elif key not in ("required", "minProperties", "default"):
            partial[key] = _partial(value)
    return partial
