"""Render connector configs from Jinja templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import TemplateNotFound

from outbox_common.error_text import one_line
from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline.allowed_properties import connector_problem, require_allowed
from outbox_kit.pipeline.avro import without_docs
from outbox_kit.pipeline.environment import Environment
from outbox_kit.pipeline.lock import Lock, LockedSchema
from outbox_kit.pipeline.model import Aggregate, Pipeline
from outbox_kit.pipeline.schema_references import inlined_schema
from outbox_kit.pipeline.template_rendering import JINJA_ERRORS, UnsupportedPipelineError, render_text

UNKNOWN = "(known after apply)"
# Keys of the environment file that a template can read. Credentials with which outbox-kit logs in are excluded.
TEMPLATE_KEYS: dict[str, Any] = {
    "name": True,
    "source": {"host", "port", "database", "sslmode", "sslrootcert", "connector"},
    "kafka": {"bootstrap_servers", "cluster_id", "replication_factor", "min_insync_replicas"},
    "registry": {"url", "connector_url"},
    "connect": {"url", "workers"},
    "connector": True,
}


def render_connector(
    pipeline: Pipeline, environment: Environment, lock: Lock | None, templates: Path
) -> dict[str, str]:
    """Return the connector's config, sorted by key. Values are text, and the worker resolves placeholders.

    The template is read from the folder `templates`, or from outbox-kit's templates if the folder does not contain it.
    Schema ids are UNKNOWN before the first apply. Raises ConfigurationError.
    """
    name = f"{pipeline.connector.template}.json.j2"
    folders = [templates, packaged_templates()]
    try:
        text = render_text(folders, name, _template_context(pipeline, environment, lock))
    except TemplateNotFound:
        files = {path.name for folder in folders for path in folder.glob("*.json.j2")}
        names = ", ".join(sorted(file.removesuffix(".json.j2") for file in files))
        raise ConfigurationError(f"no template {templates / name}", f"use one of the templates {names}") from None
    except UnsupportedPipelineError as error:
        hint = "change this in the pipeline file, or use another connector.template"
        raise ConfigurationError(f"template {pipeline.connector.template}: {one_line(str(error))}", hint) from None
    except JINJA_ERRORS as error:
        raise ConfigurationError(
            f"template {templates / name}: {one_line(str(error))}", "correct the template"
        ) from None
    return dict(sorted({**_parse_config(text, templates / name), **pipeline.connector.overrides}.items()))


def packaged_templates() -> Path:
    """Return the folder of outbox-kit's templates."""
    return packaged_connectors() / "templates"


def packaged_connectors() -> Path:
    """Return outbox-kit's own folder `connectors`, in the installed package or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "connectors"
    return installed if installed.is_dir() else package.parents[1] / "connectors"


def _parse_config(text: str, path: Path) -> dict[str, str]:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        line = "".join(text.splitlines()[error.lineno - 1 : error.lineno]).strip()
        message = f"template {path} does not render to JSON: {error.msg} in {line[:80]!r}"
        raise ConfigurationError(message, "correct the template, and use tojson for values") from None
    except RecursionError:
        raise ConfigurationError(f"template {path} renders to nested JSON", "correct the template") from None
    if not isinstance(config, dict):
        raise ConfigurationError(f"template {path} does not render to a JSON object", "correct the template")
    settings = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    try:
        require_allowed(settings, connector_problem)
    except ValueError as error:
        raise ConfigurationError(f"template {path}: {one_line(str(error))}", "correct the template") from None
    return settings


def _template_context(pipeline: Pipeline, environment: Environment, lock: Lock | None) -> dict[str, Any]:
    """Return the values for a template as plain data, because methods of models and paths can write files."""
    settings = environment.model_dump(mode="json", include=TEMPLATE_KEYS)
    topics = {name: getattr(pipeline, name) for name in ("dead_letter_topic", "heartbeat_topic", "transaction_topic")}
    return {
        "pipeline": {**pipeline.model_dump(mode="json"), **topics},
        "environment": settings,
        "source": settings["source"],
        "settings": settings["connector"],
        "columns": pipeline.source.columns.model_dump(mode="json"),
        "source_epoch": str(lock.source_epoch if lock else 1),
        "aggregates": [_aggregate_values(pipeline, lock, name, entry) for name, entry in pipeline.routed.items()],
    }


def _aggregate_values(pipeline: Pipeline, lock: Lock | None, name: str, aggregate: Aggregate) -> dict[str, Any]:
    """Return the values of one aggregate for the template. The latest schema version comes first."""
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
    """Return the schema without `doc` and with `${` escaped, because Connect would resolve placeholders in the text."""
    return without_docs(schema).replace("${", "\\u0024{")
