"""docs/pipeline.md, made from the models: `python -m outbox_kit.pipeline.reference > docs/pipeline.md`."""

from __future__ import annotations

import sys
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from outbox_kit.pipeline import environment, model

INTRODUCTION = """# The pipeline file and the environment files

<!-- Made by `python -m outbox_kit.pipeline.reference`; a test holds this page against the models. -->

One YAML file describes a pipeline: the outbox table, the aggregates, the connector, the tables made of the
topics. [`connectors/library.yaml`](../connectors/library.yaml) is the worked example. What differs by target
(addresses, credentials, replication) is in `connectors/environments/NAME.yaml`, chosen by `-e NAME`:
[`local.yaml`](../connectors/environments/local.yaml) for the embedded stack,
[`production.example.yaml`](../connectors/environments/production.example.yaml) to copy.

Unknown keys are errors. Relative paths are relative to the folder that holds `connectors/`.

Two sets of credentials, never mixed: the tool's own (`admin`, `registry`, `connect`, `targets`) are written
`"{{ env.NAME }}"` and come from the environment variables of whoever runs the command; only those of the
sections that a command uses must be set. The connector's password is a placeholder such as `${env:NAME}` or
`${file:/path:key}`, passed on as it is and resolved by the Connect worker. `"{{ stack.NAME }}"` is a value of
the running embedded stack.
"""
TABLE_HEAD = "| key | type | default | meaning |\n|---|---|---|---|\n"
PAGES: list[tuple[str, list[type[BaseModel]]]] = [
    (
        "Pipeline file",
        [
            model.Pipeline,
            model.Source,
            model.Columns,
            model.Aggregate,
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
            environment.ConnectorSettings,
            environment.PostgresTarget,
            environment.DeltaTarget,
        ],
    ),
]


def page() -> str:
    """The whole page as Markdown."""
    parts = [INTRODUCTION]
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
    if "additionalProperties" in schema:
        return f"mapping to {_type(schema['additionalProperties'])}"
    if "oneOf" in schema:
        return " or ".join(_type(each) for each in schema["oneOf"])
    return {"password": "secret", "path": "path"}.get(schema.get("format", ""), str(schema.get("type", "")))


if __name__ == "__main__":
    sys.stdout.write(page())
