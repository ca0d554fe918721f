"""From the pipeline file and an environment file to jobs. The one place that knows outbox_kit's models."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from outbox_kit.errors import OutboxKitError
from outbox_kit.pipeline import (
    Environment,
    HttpService,
    Kafka,
    Materialization,
    Overrides,
    Pipeline,
    load_files,
)
from outbox_kit.pipeline import IcebergTarget as IcebergTargetModel
from outbox_kit.pipeline import PostgresTarget as PostgresTargetModel
from outbox_kit.pipeline.loading import environment_values
from outbox_spark.errors import ConfigurationError
from outbox_spark.jobs.job_file import REFERENCE, reference
from outbox_spark.jobs.model import (
    DeltaTarget,
    Format,
    IcebergTarget,
    MaterializeJob,
    MissedTombstones,
    Mode,
    Options,
    PostgresTarget,
    Registry,
    Source,
    Target,
)

_SECTIONS = ("kafka", "registry", "targets")
_SECRET_KEY = re.compile(r"password|secret|token|credential|access-key|jaas|oauthbearer\.config|\.key\.pem")
"""Of settings that are passed on to a client: what must not be written down."""
_VARIABLE = re.compile(r"\benv\.([A-Za-z_][A-Za-z0-9_]*)")


def load_jobs(
    pipeline_file: Path,
    environment_name: str,
    *,
    aggregates: Collection[str] = (),
    targets: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
) -> list[MaterializeJob]:
    """The pipeline's materializations, in the order of the file; empty collections select all.

    `environ` is used instead of the environment variables. Raises ConfigurationError when a file is wrong or nothing
    is selected.
    """
    overrides = Overrides() if environ is None else Overrides(environ=environ)
    try:
        pipeline, environment = load_files(pipeline_file, environment_name, overrides, needs=_SECTIONS)
    except OutboxKitError as error:
        raise ConfigurationError(error.message, error.hint) from error
    selected = [
        entry
        for entry in pipeline.materializations
        if (not aggregates or entry.aggregate in aggregates) and (not targets or entry.target in targets)
    ]
    if not selected:
        known = ", ".join(f"{entry.aggregate} -> {entry.target}" for entry in pipeline.materializations) or "none"
        message = f"{pipeline_file}: no materialization is selected"
        raise ConfigurationError(message, f"the file has: {known}")
    return [_job(pipeline, environment, entry) for entry in selected]


def _job(pipeline: Pipeline, environment: Environment, entry: Materialization) -> MaterializeJob:
    target, options = _target(environment, entry.target), _options(entry)
    if options.mode is Mode.HISTORY and not isinstance(target, PostgresTarget | DeltaTarget):
        kind = type(target).__name__.removesuffix("Target")
        message = f"{entry.aggregate} -> {entry.target}: mode history is not there for {kind}"
        raise ConfigurationError(message, "history tables are made in PostgreSQL and in Delta")
    return MaterializeJob(
        aggregate=entry.aggregate,
        topic=pipeline.topic_of(entry.aggregate),
        table=entry.table,
        kafka=_kafka(environment.kafka),
        registry=_registry(environment.registry),
        target_name=entry.target,
        target=target,
        options=options,
    )


def _options(entry: Materialization) -> Options:
    return Options(
        mode=Mode(entry.mode),
        key_format=Format(entry.key_format),
        value_format=Format(entry.value_format),
        schema_version=entry.schema_version,
        tombstone_ttl=timedelta(hours=entry.tombstone_ttl_hours),
        missed_tombstones=MissedTombstones(entry.missed_tombstones),
        max_quarantined=entry.max_quarantined,
    )


def _kafka(kafka: Kafka) -> dict[str, str]:
    return {**kafka.client, "bootstrap.servers": kafka.bootstrap_servers}


def _registry(service: HttpService) -> Registry:
    return Registry(
        url=service.url,
        username=service.username,
        password=service.password.get_secret_value() if service.password else None,
        token=service.token.get_secret_value() if service.token else None,
        ca_file=str(service.ca_file) if service.ca_file else None,
        certificate_file=str(service.certificate_file) if service.certificate_file else None,
        key_file=str(service.key_file) if service.key_file else None,
    )


def _target(environment: Environment, name: str) -> Target:
    model = environment.targets.get(name)
    if model is None:
        known = ", ".join(sorted(environment.targets)) or "none"
        message = f"environment {environment.name!r} has no target {name!r}; it has: {known}"
        raise ConfigurationError(message, "add it under `targets:` of the environment file")
    if isinstance(model, PostgresTargetModel):
        return PostgresTarget(
            host=model.host,
            port=model.port,
            database=model.database,
            user=model.user,
            password=model.password.get_secret_value(),
            schema=model.target_schema,
            sslmode=model.sslmode,
            sslrootcert=str(model.sslrootcert) if model.sslrootcert else None,
        )
    if isinstance(model, IcebergTargetModel):
        return IcebergTarget(namespace=model.namespace, catalog=model.catalog)
    return DeltaTarget(path=model.path)


def jobs_without_secrets(
    pipeline_file: Path,
    environment_name: str,
    *,
    aggregates: Collection[str] = (),
    targets: Collection[str] = (),
) -> list[MaterializeJob]:
    """As load_jobs, for a job file: every secret is a reference to an environment variable, which need not be set.

    The variable is the one that the environment file names for it; where it names none (the value is written down, or
    comes from the embedded stack), the one that would override the key: OUTBOX__ENVIRONMENT__REGISTRY__PASSWORD.
    """
    try:
        raw = environment_values(environment_name, pipeline_file, Overrides()).data
    except OutboxKitError as error:
        raise ConfigurationError(error.message, error.hint) from error
    names = {name for text in _secret_texts(raw) for name in _VARIABLE.findall(text)}
    environ = {**os.environ, **{name: reference(name) for name in names}}
    jobs = load_jobs(pipeline_file, environment_name, aggregates=aggregates, targets=targets, environ=environ)
    return [_without_secrets(job) for job in jobs]


def _secret_texts(raw: Mapping[str, Any]) -> Iterator[str]:
    """What an environment file has in the places of secrets, and of settings that are passed on to clients."""
    kafka, registry, targets = (_mapping(raw.get(name)) for name in _SECTIONS)
    yield from map(str, _mapping(kafka.get("client")).values())
    for service in map(_mapping, [registry, *targets.values()]):
        yield from map(str, _mapping(service.get("catalog")).values())
        yield from (str(value) for key, value in service.items() if _SECRET_KEY.search(key))


def _mapping(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - YAML; what is wrong is told when the file is loaded
    return value if isinstance(value, Mapping) else {}


def _without_secrets(job: MaterializeJob) -> MaterializeJob:
    return replace(
        job,
        kafka=_settings(job.kafka, "kafka", "client"),
        registry=_service(job.registry, "registry"),
        target=_service(job.target, "targets", job.target_name),
    )


def _service(service: Any, *location: str) -> Any:  # noqa: ANN401 - a dataclass, returned as it came
    """What is not shown in a repr() is a secret, or holds some."""
    changed: dict[str, object] = {}
    for entry in fields(service):
        value = getattr(service, entry.name)
        if isinstance(value, Mapping):
            changed[entry.name] = _settings(value, *location, entry.name)
        elif not entry.repr and value is not None:
            changed[entry.name] = _referred(value, *location, entry.name)
    return replace(service, **changed)


def _settings(settings: Mapping[str, str], *location: str) -> dict[str, str]:
    return {
        key: _referred(value, *location, key) if _SECRET_KEY.search(key) else value for key, value in settings.items()
    }


def _referred(value: str, *location: str) -> str:
    """A secret as a reference; one that is written down as one to the variable that overrides its key."""
    if REFERENCE.fullmatch(value):
        return value
    return reference("__".join(["OUTBOX", "ENVIRONMENT", *(re.sub(r"[^A-Z0-9]", "_", p.upper()) for p in location)]))


def load_sources(pipeline_file: Path, environment_name: str, aggregates: Collection[str]) -> dict[str, Source]:
    """The source table of each of the aggregates that has one. Raises ConfigurationError."""
    try:
        pipeline, environment = load_files(pipeline_file, environment_name, needs=("source",))
    except OutboxKitError as error:
        raise ConfigurationError(error.message, error.hint) from error
    database = environment.source
    sources = {
        name: Source(
            host=database.host,
            port=database.port,
            database=database.database,
            user=database.admin.user,
            password=database.admin.password.get_secret_value(),
            table=aggregate.backfill.table,
            key=aggregate.backfill.key,
            slot=pipeline.source.slot,
            sslmode=database.sslmode,
            sslrootcert=str(database.sslrootcert) if database.sslrootcert else None,
        )
        for name, aggregate in pipeline.aggregates.items()
        if name in aggregates and aggregate.backfill is not None
    }
    if not sources:
        message = f"{pipeline_file}: none of the selected aggregates has `backfill`"
        raise ConfigurationError(message, "it names the source table and its key, see docs/pipeline.md")
    return sources
