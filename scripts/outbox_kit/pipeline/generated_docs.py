"""What is made from the models: the tables of docs/pipeline.md and the JSON Schemas in connectors/.

`python -m outbox_kit.pipeline.generated_docs --write FOLDER` writes them into a project folder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from outbox_kit.pipeline import environment, model

PAGE = "docs/pipeline.md"
MARK = (
    "<!-- From here on made by `python -m outbox_kit.pipeline.generated_docs --write .`; "
    "a test holds it against the models. -->\n"
)
TABLE_HEAD = "| key | type | default | meaning |\n|---|---|---|---|\n"
PAGES: list[tuple[str, list[type[BaseModel]]]] = [
    (
        "Pipeline file",
        [
            model.Pipeline,
            model.Source,
            model.Columns,
            model.Aggregate,
            model.Backfill,
            model.DeadLetter,
            model.Connector,
            model.Materialization,
        ],
    ),
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


def files(folder: Path) -> dict[str, str]:
    """Every file that is made from the models, by path in the project folder; of the page, what is below MARK."""
    introduction, mark, _ = (folder / PAGE).read_text(encoding="utf-8").partition(MARK)
    if not mark:
        msg = f"{folder / PAGE} has no line {MARK!r}"
        raise ValueError(msg)
    return {
        PAGE: f"{introduction}{MARK}\n{tables()}",
        "connectors/pipeline.schema.json": _document(pipeline_schema()),
        "connectors/environment.schema.json": _document(environment_schema()),
    }


def _document(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def tables() -> str:
    """Every model as Markdown."""
    parts = []
    for title, models in PAGES:
        parts.append(f"## {title}\n")
        parts += [_section(entry) for entry in models]
    return "\n".join(parts)


def _section(entry: type[BaseModel]) -> str:
    properties: dict[str, Any] = entry.model_json_schema()["properties"]
    heading = f"### {entry.__name__}\n\n{(entry.__doc__ or '').strip()}\n\n{TABLE_HEAD}"
    rows = []
    for name, field in entry.model_fields.items():
        key = field.alias or name
        default = "required" if field.is_required() else _default(field.default)
        rows.append(f"| `{key}` | {_type(properties[key])} | {default} | {field.description or ''} |\n")
    return heading + "".join(rows)


def _default(value: object) -> str:
    if value is PydanticUndefined or isinstance(value, BaseModel):
        return "see below"
    return "none" if value is None or value in ([], {}) else f"`{value}`"


def _type(schema: dict[str, Any]) -> str:  # noqa: PLR0911 - one line per form
    """A JSON Schema type in a word or two."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"] if each.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"mapping to {_type(schema['additionalProperties'])}"
    if "patternProperties" in schema:
        return f"mapping to {_type(next(iter(schema['patternProperties'].values())))}"
    if "oneOf" in schema:
        return " or ".join(_type(each) for each in schema["oneOf"])
    return {"password": "secret", "path": "path"}.get(schema.get("format", ""), str(schema.get("type", "")))


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
    return {"$schema": DRAFT, **_for_editors(model.Pipeline.model_json_schema())}


def environment_schema() -> Node:
    """Of an environment file; every value may be an expression, and `pipeline:` any part of a pipeline file."""
    schema = _for_editors(_with_expressions(environment.Environment.model_json_schema()))
    overlay = _partial(_for_editors(model.Pipeline.model_json_schema()))
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FOLDER", required=True, help="Project folder.")
    folder: Path = parser.parse_args().write
    for name, text in files(folder).items():
        (folder / name).write_text(text, encoding="utf-8")
