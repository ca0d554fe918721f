"""Generate the reference part of docs/pipeline.md and the JSON Schemas in connectors/ from the models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from outbox_kit.pipeline import environment
from outbox_kit.pipeline.allowed_properties import ALLOWED, LOGIN_CLASSES
from outbox_kit.pipeline.model import (
    Aggregate,
    Backfill,
    Columns,
    Connector,
    DeadLetter,
    Materialization,
    Pipeline,
    Source,
)
from outbox_lab.documents.markdown import list_item

REFERENCE_SECTIONS: list[tuple[str, list[type[BaseModel]]]] = [
    ("Pipeline file", [Pipeline, Source, Columns, Aggregate, Backfill, DeadLetter, Connector, Materialization]),
    (
        "Environment file",
        [
            environment.Environment,
            environment.SourceDatabase,
            environment.Login,
            environment.ConnectorLogin,
            environment.Kafka,
            environment.HttpService,
            environment.Registry,
            environment.Connect,
            environment.ConnectorSettings,
            environment.PostgresTarget,
            environment.DeltaTarget,
            environment.IcebergTarget,
        ],
    ),
]


def reference() -> str:
    """Return Markdown that describes the keys of all models."""
    sections = []
    for title, models in REFERENCE_SECTIONS:
        sections += [f"## {title}\n", *map(_section, models)]
    properties = [list_item(f"`{place}`: {_names(names.split())}") for place, names in ALLOWED.items()]
    classes = list_item(f"Login modules and callback handlers: {_names(LOGIN_CLASSES.split())}")
    return "\n".join([*sections, "## Allowed properties\n", "".join([*properties, classes])])


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _section(model: type[BaseModel]) -> str:
    properties: dict[str, Any] = model.model_json_schema()["properties"]
    section = f"### {model.__name__}\n\n{(model.__doc__ or '').strip()}\n\n"
    for name, field in model.model_fields.items():
        key = field.alias or name
        default = "required" if field.is_required() else _default_text(field.default)
        section += list_item(f"`{key}` ({_type_name(properties[key])}; {default}): {field.description or ''}")
    return section


def _default_text(value: object) -> str:
    if value is PydanticUndefined or isinstance(value, BaseModel):
        return "default: see below"
    return "optional" if value is None or value in ([], {}) else f"default: `{value}`"


def _type_name(schema: dict[str, Any]) -> str:  # noqa: PLR0911 - one return per kind of type
    """Return a short name for the type that a JSON Schema describes."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " or ".join(_type_name(member) for member in schema["anyOf"] if member.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type_name(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"mapping to {_type_name(schema['additionalProperties'])}"
    if "patternProperties" in schema:
        return f"mapping to {_type_name(next(iter(schema['patternProperties'].values())))}"
    if "oneOf" in schema:
        return " or ".join(_type_name(member) for member in schema["oneOf"])
    return {"password": "secret", "path": "path"}.get(schema.get("format", ""), str(schema.get("type", "")))


JSON_SCHEMA_DRAFT = "http://json-schema.org/draft-07/schema#"  # supported by every version of yaml-language-server
OVERLAY_PREFIX = "PipelineOverlay"
EXPRESSION_SCHEMA = {
    "type": "string",
    "pattern": r"\{\{",
    "description": "{{ env.NAME }}, or {{ stack.NAME }} of the running embedded stack.",
}
Node = dict[str, Any]


def pipeline_schema() -> Node:
    """Return the JSON Schema with which editors validate a pipeline file."""
    return {"$schema": JSON_SCHEMA_DRAFT, **_map_schemas(Pipeline.model_json_schema(), _for_editors)}


def environment_schema() -> Node:
    """Return the JSON Schema of an environment file. Values can be expressions. Keys under `pipeline:` are optional."""
    schema = _map_schemas(_map_schemas(environment.Environment.model_json_schema(), _with_expressions), _for_editors)
    overlay = _map_schemas(_map_schemas(Pipeline.model_json_schema(), _for_editors), _partial)
    definitions = overlay.pop("$defs")
    schema["$defs"] |= {**definitions, OVERLAY_PREFIX: overlay}
    description = schema["properties"]["pipeline"]["description"]
    schema["properties"]["pipeline"] = {"allOf": [{"$ref": f"#/$defs/{OVERLAY_PREFIX}"}], "description": description}
    return {"$schema": JSON_SCHEMA_DRAFT, **schema}


def _map_schemas(node: Any, change: Callable[[Node], Node]) -> Any:  # noqa: ANN401 - any part of a schema
    """Apply `change` to every schema in `node`, inner schemas first. Do not apply it to data or property names."""
    if isinstance(node, list):
        return [_map_schemas(item, change) for item in node]
    if not isinstance(node, dict):
        return node
    return change(
        {
            key: {name: _map_schemas(item, change) for name, item in value.items()}
            if key in ("properties", "patternProperties", "$defs")
            else value
            if key in ("default", "enum", "required")
            else _map_schemas(value, change)
            for key, value in node.items()
        }
    )


def _for_editors(node: Node) -> Node:
    """Remove pydantic's titles and OpenAPI keywords. If a $ref has sibling keywords, wrap it in allOf for draft 7."""
    retained = {key: value for key, value in node.items() if key not in ("title", "discriminator", "writeOnly")}
    if "$ref" in retained and len(retained) > 1:
        retained["allOf"] = [{"$ref": retained.pop("$ref")}]
    return retained


def _with_expressions(node: Node) -> Node:
    """Allow an expression in place of a scalar value."""
    if node.get("type") not in ("integer", "number", "boolean") and not {"pattern", "enum"} & node.keys():
        return node
    annotations: Node = {key: node[key] for key in ("description", "default") if key in node}
    plain = {key: value for key, value in node.items() if key not in annotations}
    return {"anyOf": [plain, EXPRESSION_SCHEMA], **annotations}


def _partial(node: Node) -> Node:
    """Make every key optional, and prefix the names of definitions with OVERLAY_PREFIX."""
    optional_schema = {key: value for key, value in node.items() if key not in ("required", "minProperties", "default")}
    if "$defs" in optional_schema:
        optional_schema["$defs"] = {f"{OVERLAY_PREFIX}{name}": item for name, item in optional_schema["$defs"].items()}
    if "$ref" in optional_schema:
        optional_schema["$ref"] = optional_schema["$ref"].replace("#/$defs/", f"#/$defs/{OVERLAY_PREFIX}")
    return optional_schema
