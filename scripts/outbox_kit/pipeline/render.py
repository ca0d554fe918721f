"""Renders connector configs from Jinja templates. Pure: what is not known before `apply` says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment as JinjaEnvironment
from jinja2 import FileSystemLoader, StrictUndefined, TemplateError, TemplateNotFound, TemplateRuntimeError, Undefined

from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline.avro import without_docs
from outbox_kit.pipeline.environment import Environment
from outbox_kit.pipeline.lock import Lock
from outbox_kit.pipeline.model import Aggregate, Pipeline
from outbox_kit.pipeline.schema_references import inlined

UNKNOWN = "(known after apply)"


def render_connector(
    pipeline: Pipeline, environment: Environment, lock: Lock | None, templates: Path
) -> dict[str, str]:
    """The connector's config: every value text, placeholders of the worker intact, sorted by key.

    A template that is not in the folder `templates` is the kit's own. Before the first apply schema ids are not known
    and stand as UNKNOWN. Raises ConfigurationError.
    """
    name = f"{pipeline.connector.template}.json.j2"
    folders = [templates, own_templates()]
    loader = FileSystemLoader(folders)
    jinja = JinjaEnvironment(loader=loader, undefined=StrictUndefined, autoescape=False)  # noqa: S701 - JSON
    # Jinja's own tojson escapes <, >, & and ' for HTML; a schema must arrive as it was written.
    jinja.filters["tojson"] = _to_json
    jinja.globals["refuse"] = _refuse_pipeline
    try:
        text = jinja.get_template(name).render(_context(pipeline, environment, lock))
    except TemplateNotFound:
        files = {path.name for folder in folders for path in folder.glob("*.json.j2")}
        known = ", ".join(sorted(file.removesuffix(".json.j2") for file in files))
        raise ConfigurationError(f"no template {templates / name}", f"templates here: {known}") from None
    except _RefusedPipelineError as error:
        hint = "take it out of the pipeline file, or choose another connector.template"
        raise ConfigurationError(f"template {pipeline.connector.template}: {error}", hint) from None
    except (TemplateError, TypeError) as error:  # tojson of something undefined, or of a secret
        raise ConfigurationError(f"template {templates / name}: {error}", "correct the template") from None
    return dict(sorted({**_parse(text, templates / name), **pipeline.connector.overrides}.items()))


def own_templates() -> Path:
    """The folder of the kit's own templates: in the installed package, or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parents[1] / "connectors" / "templates"


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_refuse)


def _refuse(value: object) -> object:
    if isinstance(value, Undefined):
        str(value)  # StrictUndefined raises, and says what is undefined
    raise TypeError(f"a {type(value).__name__} has no place in a template")


class _RefusedPipelineError(TemplateRuntimeError):
    """The template is right, and the pipeline file asks for what it has not."""


def _refuse_pipeline(reason: str) -> None:
    """What a template calls for a pipeline that it cannot serve."""
    raise _RefusedPipelineError(reason)


def _parse(text: str, path: Path) -> dict[str, str]:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        line = "".join(text.splitlines()[error.lineno - 1 : error.lineno]).strip()
        message = f"template {path} does not render to JSON: {error.msg} in {line[:80]!r}"
        raise ConfigurationError(message, "correct the template; quote values with tojson") from None
    if not isinstance(config, dict):
        raise ConfigurationError(f"template {path} does not render to a JSON object", "correct the template")
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}


def _context(pipeline: Pipeline, environment: Environment, lock: Lock | None) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "environment": environment,
        "source": environment.source,
        "settings": environment.connector,
        "columns": pipeline.source.columns,
        "source_epoch": str(lock.source_epoch if lock else 1),
        "aggregates": [_route(pipeline, lock, name) for name in pipeline.routed],
    }


def _route(pipeline: Pipeline, lock: Lock | None, name: str) -> dict[str, Any]:
    """What the template needs of one aggregate: topic, partitions, schema versions newest first."""
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


def _versions(aggregate: Aggregate, locked: list[Any]) -> list[dict[str, str]]:
    if aggregate.schema_file is None:
        return []
    if not locked:
        return [{"label": "1", "id": UNKNOWN, "text": _safe(inlined(aggregate))}]
    return [{"label": str(entry.version), "id": str(entry.id), "text": _safe(entry.text)} for entry in locked]


def _safe(schema: str) -> str:
    """A schema text that Connect leaves alone: `${` in a value would be read as a placeholder."""
    return without_docs(schema).replace("${", "\\u0024{")
