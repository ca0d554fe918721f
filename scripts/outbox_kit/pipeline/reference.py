"""What is made from the models: the tables of docs/pipeline.md and the JSON Schemas in connectors/.

`python -m outbox_kit.pipeline.reference --write FOLDER` writes them into a project folder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from outbox_kit.pipeline import environment, materialization, model
from outbox_kit.pipeline.editor_schemas import environment_schema, pipeline_schema

PAGE = "docs/pipeline.md"
MARK = (
    "<!-- From here on made by `python -m outbox_kit.pipeline.reference --write .`; "
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
            materialization.Materialization,
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
            environment.ParquetTarget,
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FOLDER", required=True, help="Project folder.")
    folder: Path = parser.parse_args().write
    for name, text in files(folder).items():
        (folder / name).write_text(text, encoding="utf-8")
