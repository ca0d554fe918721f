"""From the pipeline file and an environment file to jobs. The one place that knows outbox_kit's models."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

from outbox_kit.errors import OutboxKitError
from outbox_kit.pipeline import (
    Environment,
    HttpService,
    Kafka,
    Materialization,
    Pipeline,
    load_files,
)
from outbox_kit.pipeline import IcebergTarget as IcebergTargetModel
from outbox_kit.pipeline import ParquetTarget as ParquetTargetModel
from outbox_kit.pipeline import PostgresTarget as PostgresTargetModel
from outbox_spark.errors import ConfigurationError
from outbox_spark.model import (
    DeltaTarget,
    Format,
    IcebergTarget,
    MaterializeJob,
    MissedTombstones,
    Mode,
    Options,
    ParquetTarget,
    PostgresTarget,
    Registry,
    Target,
)


def load_jobs(
    pipeline_file: Path,
    environment_name: str,
    *,
    aggregates: Collection[str] = (),
    targets: Collection[str] = (),
) -> list[MaterializeJob]:
    """The pipeline's materializations, in the order of the file; empty collections select all.

    Raises ConfigurationError when a file is wrong or nothing is selected.
    """
    try:
        pipeline, environment = load_files(pipeline_file, environment_name, needs=("kafka", "registry", "targets"))
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
    return MaterializeJob(
        aggregate=entry.aggregate,
        topic=pipeline.topic_of(entry.aggregate),
        table=entry.table,
        kafka=_kafka(environment.kafka),
        registry=_registry(environment.registry),
        target_name=entry.target,
        target=_target(environment, entry.target),
        options=_options(entry),
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
        )
    if isinstance(model, IcebergTargetModel):
        return IcebergTarget(namespace=model.namespace, catalog=model.catalog)
    if isinstance(model, ParquetTargetModel):
        return ParquetTarget(path=model.path)
    return DeltaTarget(path=model.path)
