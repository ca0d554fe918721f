"""Renderer of connector configs from Jinja templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Environment as JinjaEnvironment
from jinja2 import FileSystemLoader, StrictUndefined, TemplateError, TemplateNotFound, TemplateRuntimeError, Undefined

from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline.avro import without_docs
from outbox_kit.pipeline.environment import Environment
from outbox_kit.pipeline.lock import Lock, LockedSchema
from outbox_kit.pipeline.model import Aggregate, Pipeline
from outbox_kit.pipeline.schema_references import inlined_schema

UNKNOWN = "(known after apply)"


def render_connector(
    pipeline: Pipeline, environment: Environment, lock: Lock | None, templates: Path
) -> dict[str, str]:
    """Return the connector's config, sorted by key. Values are text; the worker resolves placeholders.

    The template is read from the folder `templates`, or if it is not there, from the templates of outbox-kit. Schema
    ids are UNKNOWN before the first apply. Raises ConfigurationError.
    """
    name = f"{pipeline.connector.template}.json.j2"
    folders = [templates, packaged_templates()]
    loader = FileSystemLoader(folders)
    jinja = JinjaEnvironment(loader=loader, undefined=StrictUndefined, autoescape=False)  # noqa: S701 - JSON
    # Jinja's tojson escapes <, >, & and ' for HTML, which would change schemas.
    jinja.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False, default=_raise_not_json)
    jinja.globals["refuse"] = _raise_unsupported
    try:
        text = jinja.get_template(name).render(_template_context(pipeline, environment, lock))
    except TemplateNotFound:
        files = {path.name for folder in folders for path in folder.glob("*.json.j2")}
        names = ", ".join(sorted(file.removesuffix(".json.j2") for file in files))
        raise ConfigurationError(f"no template {templates / name}", f"use one of the templates {names}") from None
    except _UnsupportedPipelineError as error:
        hint = "change this in the pipeline file, or use another connector.template"
        raise ConfigurationError(f"template {pipeline.connector.template}: {error}", hint) from None
    except (TemplateError, TypeError) as error:  # tojson raises TypeError for a secret
        raise ConfigurationError(f"template {templates / name}: {error}", "correct the template") from None
    return dict(sorted({**_parse_config(text, templates / name), **pipeline.connector.overrides}.items()))


def packaged_templates() -> Path:
    """Return the folder of outbox-kit's templates, in the installed package or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parents[1] / "connectors" / "templates"


def _raise_not_json(value: object) -> NoReturn:
    if isinstance(value, Undefined):
        str(value)  # raises UndefinedError with the name of the value
    raise TypeError(f"a value of type {type(value).__name__} cannot be rendered as JSON")


class _UnsupportedPipelineError(TemplateRuntimeError):
    """The template does not support a setting of the pipeline file."""


def _raise_unsupported(reason: str) -> NoReturn:
    """Raise the error of a setting that the template does not support. Templates call this function as `refuse`."""
    raise _UnsupportedPipelineError(reason)


def _parse_config(text: str, path: Path) -> dict[str, str]:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        line = "".join(text.splitlines()[error.lineno - 1 : error.lineno]).strip()
        message = f"template {path} does not render to JSON: {error.msg} in {line[:80]!r}"
        raise ConfigurationError(message, "correct the template, and write values with tojson") from None
    if not isinstance(config, dict):
        raise ConfigurationError(f"template {path} does not render to a JSON object", "correct the template")
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}


def _template_context(pipeline: Pipeline, environment: Environment, lock: Lock | None) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "environment": environment,
        "source": environment.source,
        "settings": environment.connector,
        "columns": pipeline.source.columns,
        "source_epoch": str(lock.source_epoch if lock else 1),
        "aggregates": [_aggregate_values(pipeline, lock, name) for name in pipeline.routed],
    }


def _aggregate_values(pipeline: Pipeline, lock: Lock | None, name: str) -> dict[str, Any]:
    """Return the values of one aggregate for the template. The latest schema version is first."""
    aggregate = pipeline.routed[name]
    return {
        "name": name,
        "topic": pipeline.topic_of(name),
        "partitions": str(aggregate.partitions),
        "partition_field": aggregate.partition_field,
        "payload": aggregate.payload,
        "unknown_fields": aggregate.unknown_fields,
        "tombstone_event_types": aggregate.tombstone_event_types,
        "versions": _versions(aggregate, lock.schemas.get(name, []) if lock else []),
    }


def _versions(aggregate: Aggregate, schemas: list[LockedSchema]) -> list[dict[str, str]]:
    if aggregate.schema_file is None:
        return []
    if not schemas:
        return [{"label": "1", "id": UNKNOWN, "text": _escaped_text(inlined_schema(aggregate))}]
    return [{"label": str(entry.version), "id": str(entry.id), "text": _escaped_text(entry.text)} for entry in schemas]


def _escaped_text(schema: str) -> str:
    """Return the schema without `doc`, and with `${` escaped, because Connect would replace a placeholder."""
    return without_docs(schema).replace("${", "\\u0024{")
