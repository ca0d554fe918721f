"""Renderer of connector configs from Jinja templates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateNotFound, TemplateRuntimeError

from outbox_common.terminal_text import one_line
from outbox_kit.errors import ConfigurationError
from outbox_kit.pipeline import template_rendering
from outbox_kit.pipeline.avro import without_docs
from outbox_kit.pipeline.environment import Environment
from outbox_kit.pipeline.lock import Lock, LockedSchema
from outbox_kit.pipeline.model import Aggregate, Pipeline
from outbox_kit.pipeline.schema_references import inlined_schema
from outbox_kit.pipeline.template_rendering import (
    CPU_SECONDS,
    JINJA_ERRORS,
    MEMORY_BYTES,
    UnsupportedPipelineError,
    render_text,
)

WALL_SECONDS = 30
UNKNOWN = "(known after apply)"
CHILD_VARIABLES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
ERRORS_BY_KIND = {"TemplateNotFound": TemplateNotFound, "UnsupportedPipelineError": UnsupportedPipelineError}
# Keys of the environment file that a template can read: none that outbox-kit uses to log in.
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
    """Return the connector's config, sorted by key. Values are text; the worker resolves placeholders.

    The template is read from the folder `templates`, or if it is not there, from the templates of outbox-kit. Schema
    ids are UNKNOWN before the first apply. Raises ConfigurationError.
    """
    name = f"{pipeline.connector.template}.json.j2"
    folders = [templates, packaged_templates()]
    try:
        text = _render_text(folders, name, _template_context(pipeline, environment, lock))
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
    """Return the folder of outbox-kit's templates, in the installed package or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parents[1] / "connectors" / "templates"


def _render_text(folders: Sequence[Path], name: str, values: dict[str, Any]) -> str:
    """Render a template, in a process with limits unless every template is one of outbox-kit. Raises JINJA_ERRORS."""
    own, packaged = folders
    if all(_is_packaged(path, packaged) for path in own.glob("*")):
        return render_text([packaged], name, values)
    request = json.dumps({"folders": [str(folder) for folder in folders], "name": name, "values": values})
    # The process inherits no environment variable that can contain a secret, and sys.path lacks the working directory.
    variables = {key: os.environ[key] for key in CHILD_VARIABLES if key in os.environ}
    command = [sys.executable, "-P", template_rendering.__file__]
    try:
        done = subprocess.run(
            command, input=request, env=variables, capture_output=True, text=True, timeout=WALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:  # for example, the folder's file system does not respond
        raise TemplateRuntimeError(f"rendering takes over {WALL_SECONDS} s") from None
    if done.returncode != 0:
        raise TemplateRuntimeError(f"rendering takes over {CPU_SECONDS} s of CPU time or {MEMORY_BYTES >> 20} MiB")
    answer = json.loads(done.stdout)
    if "text" in answer:
        return str(answer["text"])
    raise ERRORS_BY_KIND.get(answer["kind"], TemplateRuntimeError)(answer["error"])


def _is_packaged(path: Path, packaged: Path) -> bool:
    """Return whether a file is equal to outbox-kit's template with the same name."""
    other = packaged / path.name
    if not path.is_file() or not other.is_file() or path.stat().st_size != other.stat().st_size:
        return False
    return path.read_bytes() == other.read_bytes()


def _parse_config(text: str, path: Path) -> dict[str, str]:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        line = "".join(text.splitlines()[error.lineno - 1 : error.lineno]).strip()
        message = f"template {path} does not render to JSON: {error.msg} in {line[:80]!r}"
        raise ConfigurationError(message, "correct the template, and write values with tojson") from None
    except RecursionError:
        raise ConfigurationError(f"template {path} renders to nested JSON", "correct the template") from None
    if not isinstance(config, dict):
        raise ConfigurationError(f"template {path} does not render to a JSON object", "correct the template")
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}


def _template_context(pipeline: Pipeline, environment: Environment, lock: Lock | None) -> dict[str, Any]:
    """Return the values for a template. They are plain data, because methods of models and paths can write files."""
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
    """Return the values of one aggregate for the template. The latest schema version is first."""
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
