"""Create jobs from a pipeline file and an environment file. No other module of outbox_spark imports outbox_kit."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec
from psycopg.sql import Identifier

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Backfill, Environment, Materialization, Overrides, Pipeline, load_files
from outbox_kit.pipeline.key_columns import aggregate_id, all_keys, identifiers
from outbox_spark.jobs.job_file import reference, select
from outbox_spark.jobs.model import (
    IcebergTarget,
    MaterializeJob,
    MaterializeOptions,
    Mode,
    PostgresTarget,
    SourceTable,
    Target,
)

_SECTIONS = ("kafka", "registry", "targets")


def load_jobs(
    pipeline_file: Path,
    environment_name: str,
    *,
    aggregates: Collection[str] = (),
    targets: Collection[str] = (),
    without_secrets: bool = False,
) -> list[MaterializeJob]:
    """Return the jobs of the selected materializations in file order. An empty collection selects all.

    With `without_secrets`, each secret is a reference to an environment variable, which does not have to be set. It is
    the variable that the environment file refers to, or otherwise the variable that overrides the key, for example
    OUTBOX__ENVIRONMENT__REGISTRY__PASSWORD. Raises ConfigurationError if a file is invalid or no job is selected.
    """
    overrides = Overrides(reference=reference if without_secrets else None)
    pipeline, environment = load_files(pipeline_file, environment_name, overrides, needs=_SECTIONS)
    entries = pipeline.materializations
    entries = select(entries, lambda entry: (entry.aggregate, entry.target), aggregates, targets, pipeline_file)
    return [_job(pipeline, environment, entry) for entry in entries]


def _job(pipeline: Pipeline, environment: Environment, entry: Materialization) -> MaterializeJob:
    target = _target(environment, entry.target)
    options = entry.model_dump(include={*MaterializeOptions.__struct_fields__})
    options["tombstone_ttl"] = entry.tombstone_ttl_hours * 3600
    if Mode(entry.mode) is Mode.HISTORY and isinstance(target, IcebergTarget):
        message = f"{entry.aggregate} -> {entry.target}: Iceberg does not support mode history"
        raise ConfigurationError(message, "use a target of kind postgres or delta")
    return MaterializeJob(
        aggregate=entry.aggregate,
        topic=pipeline.topic_of(entry.aggregate),
        table=entry.table,
        kafka={**environment.kafka.client, "bootstrap.servers": environment.kafka.bootstrap_servers},
        registry=environment.registry.endpoint(),
        target_name=entry.target,
        target=target,
        options=msgspec.convert(options, MaterializeOptions),
    )


def _target(environment: Environment, name: str) -> Target:
    settings = environment.targets.get(name)
    if settings is None:
        names = ", ".join(sorted(environment.targets)) or "none"
        message = f"environment {environment.name!r} has no target {name!r}; its targets are: {names}"
        raise ConfigurationError(message, "correct the target's name, or add it to `targets` in the environment file")
    target: Target = msgspec.convert(settings.plain_values(), Target)
    return target


def load_sources(pipeline_file: Path, environment_name: str, aggregates: Collection[str]) -> dict[str, SourceTable]:
    """Return a mapping from aggregate types to source tables. Raises ConfigurationError if there are none."""
    pipeline, environment = load_files(pipeline_file, environment_name, needs=("source",))
    database = environment.source
    login = {**database.plain_values(), **database.admin.plain_values()}
    server = PostgresTarget(**{name: login[name] for name in PostgresTarget.__struct_fields__ if name in login})
    sources = {
        name: SourceTable(
            server,
            aggregate.backfill.table,
            aggregate_id(identifiers(aggregate.backfill.key, "t")).as_string(),
            pipeline.source.slot,
            _query_of_all(aggregate.backfill) if aggregate.payload == "json" else "",
        )
        for name, aggregate in pipeline.aggregates.items()
        if name in aggregates and aggregate.backfill is not None
    }
    if not sources:
        message = f"{pipeline_file}: no selected aggregate type has `backfill`"
        raise ConfigurationError(message, "set backfill.table and backfill.key for an aggregate; see docs/pipeline.md")
    return sources


def _query_of_all(backfill: Backfill) -> str:
    """Return the backfill query for the keys of all rows in the backfill table, with the column aggregate_id."""
    query = backfill.query_for(all_keys(backfill.key, Identifier(*backfill.table.split("."))).as_string())
    if len(backfill.key) == 1:
        return query
    # The line break after the query ends a `--` comment in the last line of the query.
    row_id = aggregate_id(identifiers(backfill.key, "q")).as_string()
    return f"select {row_id} as aggregate_id, q.payload from (\n{query}\n) q"  # noqa: S608 - of the pipeline file
