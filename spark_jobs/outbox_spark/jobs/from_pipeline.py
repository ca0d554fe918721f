"""Jobs from a pipeline file and an environment file. The only module of outbox_spark that imports outbox_kit."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from psycopg.sql import SQL, Identifier

from outbox_common.secret_patterns import has_secret, is_secret_name
from outbox_kit.pipeline import Backfill, Environment, Materialization, Overrides, Pipeline, load_files
from outbox_kit.pipeline.loading import environment_values
from outbox_spark.errors import ConfigurationError
from outbox_spark.jobs.job_file import REFERENCE, reference, select
from outbox_spark.jobs.model import (
    DeltaTarget,
    JobSettings,
    MaterializeJob,
    MaterializeOptions,
    Mode,
    PostgresTarget,
    RegistrySettings,
    SourceTable,
    Target,
)

_SECTIONS = ("kafka", "registry", "targets")
_VARIABLE_REFERENCE = re.compile(r"\benv\s*(?:\.|\[\s*['\"])\s*([A-Za-z_][A-Za-z0-9_]*)")

S = TypeVar("S", bound=JobSettings)


def load_jobs(
    pipeline_file: Path,
    environment_name: str,
    *,
    aggregates: Collection[str] = (),
    targets: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
) -> list[MaterializeJob]:
    """Return the jobs of the selected materializations, in the order of the file; empty collections select all.

    `environ` replaces the environment variables. Raises ConfigurationError if a file is invalid or no job is selected.
    """
    overrides = Overrides() if environ is None else Overrides(environ=environ)
    pipeline, environment = load_files(pipeline_file, environment_name, overrides, needs=_SECTIONS)
    entries = pipeline.materializations
    entries = select(entries, lambda entry: (entry.aggregate, entry.target), aggregates, targets, pipeline_file)
    return [_job(pipeline, environment, entry) for entry in entries]


def _job(pipeline: Pipeline, environment: Environment, entry: Materialization) -> MaterializeJob:
    target = _target(environment, entry.target)
    options = to_struct({**dict(entry), "tombstone_ttl": entry.tombstone_ttl_hours * 3600}, MaterializeOptions)
    if options.mode is Mode.HISTORY and not isinstance(target, PostgresTarget | DeltaTarget):
        kind = type(target).__name__.removesuffix("Target")
        message = f"{entry.aggregate} -> {entry.target}: {kind} does not support mode history"
        raise ConfigurationError(message, "use a target of kind postgres or delta")
    return MaterializeJob(
        aggregate=entry.aggregate,
        topic=pipeline.topic_of(entry.aggregate),
        table=entry.table,
        kafka={**environment.kafka.client, "bootstrap.servers": environment.kafka.bootstrap_servers},
        registry=to_struct(dict(environment.registry), RegistrySettings),
        target_name=entry.target,
        target=target,
        options=options,
    )


def _target(environment: Environment, name: str) -> Target:
    settings = environment.targets.get(name)
    if settings is None:
        names = ", ".join(sorted(environment.targets)) or "none"
        message = f"environment {environment.name!r} has no target {name!r}; its targets are: {names}"
        raise ConfigurationError(message, "correct the target's name, or add it to `targets` in the environment file")
    target: Target = msgspec.convert(_with_strings(settings.model_dump(by_alias=True)), Target)
    return target


def to_struct(values: Mapping[str, Any], kind: type[S]) -> S:
    """Convert the fields of a model of outbox_kit to a struct of class `kind`; ignore fields that it does not have."""
    fields = {name: values[name] for name in kind.__struct_fields__ if name in values}
    return msgspec.convert(_with_strings(fields), kind)


def _with_strings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, with paths and pydantic's secrets converted to strings."""
    result = {}
    for name, value in values.items():
        get_secret = getattr(value, "get_secret_value", None)
        result[name] = get_secret() if get_secret else str(value) if isinstance(value, Path) else value
    return result


def jobs_without_secrets(
    pipeline_file: Path, environment_name: str, *, aggregates: Collection[str] = (), targets: Collection[str] = ()
) -> list[MaterializeJob]:
    """Return the jobs for a job file: as load_jobs, but each secret is a reference to an environment variable.

    The variables need not be set. A reference names the variable that the environment file refers to. For a literal
    value or a value of the embedded stack, it names the variable that overrides the key, for example
    OUTBOX__ENVIRONMENT__REGISTRY__PASSWORD.
    """
    raw = environment_values(environment_name, pipeline_file, Overrides()).data
    names = {name for value in _secret_values(raw) for name in _VARIABLE_REFERENCE.findall(value)}
    environ = {**os.environ, **{name: reference(name) for name in names}}
    jobs = load_jobs(pipeline_file, environment_name, aggregates=aggregates, targets=targets, environ=environ)
    return [_without_secrets(job) for job in jobs]


def _secret_values(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of an environment file that are secrets or may contain secrets."""
    kafka, registry, targets = (_mapping(raw.get(name)) for name in _SECTIONS)
    yield from map(str, _mapping(kafka.get("client")).values())
    for service in map(_mapping, [registry, *targets.values()]):
        yield from map(str, _mapping(service.get("catalog")).values())
        yield from (str(value) for key, value in service.items() if is_secret_name(key))


def _mapping(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - YAML; errors are reported when the file is loaded
    return value if isinstance(value, Mapping) else {}


def _without_secrets(job: MaterializeJob) -> MaterializeJob:
    kafka = _with_references({"client": job.kafka}, "kafka")["client"]
    registry = _with_references(msgspec.to_builtins(job.registry), "registry")
    target = _with_references(msgspec.to_builtins(job.target), "targets", job.target_name)
    return msgspec.convert(
        {**msgspec.to_builtins(job), "kafka": kafka, "registry": registry, "target": target}, MaterializeJob
    )


def _with_references(values: Mapping[str, Any], *location: str) -> dict[str, Any]:
    """Replace each secret without a reference by a reference to the variable that overrides its key."""
    return {
        name: _with_references(value, *location, name)
        if isinstance(value, Mapping)
        else _without_secret(value, *location, name)
        if isinstance(value, str)
        else value
        for name, value in values.items()
    }


def _without_secret(value: str, *location: str) -> str:
    """Return the value; a reference if it is a secret that the environment file contains in plain text."""
    has_reference = REFERENCE.search(value) is not None
    is_secret = is_secret_name(".".join(location)) and not has_reference
    if not is_secret and not has_secret(REFERENCE.sub("", value)):
        return value
    return reference("__".join(re.sub(r"[^A-Z0-9]", "_", key.upper()) for key in ("OUTBOX", "ENVIRONMENT", *location)))


def load_sources(pipeline_file: Path, environment_name: str, aggregates: Collection[str]) -> dict[str, SourceTable]:
    """Return the source tables, by aggregate type. Raises ConfigurationError if none of the aggregate types has one."""
    pipeline, environment = load_files(pipeline_file, environment_name, needs=("source",))
    database, admin = environment.source, environment.source.admin
    sources = {
        name: to_struct(
            {
                **dict(database),
                "user": admin.user,
                "password": admin.password,
                "table": aggregate.backfill.table,
                "key": aggregate.backfill.key,
                "slot": pipeline.source.slot,
                "query": _query_of_all(aggregate.backfill) if aggregate.payload == "json" else "",
            },
            SourceTable,
        )
        for name, aggregate in pipeline.aggregates.items()
        if name in aggregates and aggregate.backfill is not None
    }
    if not sources:
        message = f"{pipeline_file}: no selected aggregate type has `backfill`"
        raise ConfigurationError(message, "set backfill.table and backfill.key of an aggregate, see docs/pipeline.md")
    return sources


def _query_of_all(backfill: Backfill) -> str:
    """Return the backfill query for the keys of all rows of its table."""
    table, key = Identifier(*backfill.table.split(".")), Identifier(backfill.key)
    return backfill.query_for(SQL("array(select {} from {})").format(key, table).as_string())
