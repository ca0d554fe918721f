"""The pipeline file, environments, lock file and rendering. Pure: nothing here opens a connection."""

from outbox_kit.pipeline.environment import (
    ConnectorSettings,
    DeltaTarget,
    Environment,
    HttpService,
    Kafka,
    PostgresTarget,
    SourceDatabase,
)
from outbox_kit.pipeline.loading import load_environment, load_pipeline, project_folder
from outbox_kit.pipeline.lock import Lock, LockedSchema, LockedSource, read_lock, write_lock
from outbox_kit.pipeline.model import CANARY_AGGREGATE, Aggregate, Columns, Materialization, Pipeline, Source
from outbox_kit.pipeline.render import UNKNOWN, render_connector

__all__ = [
    "CANARY_AGGREGATE",
    "UNKNOWN",
    "Aggregate",
    "Columns",
    "ConnectorSettings",
    "DeltaTarget",
    "Environment",
    "HttpService",
    "Kafka",
    "Lock",
    "LockedSchema",
    "LockedSource",
    "Materialization",
    "Pipeline",
    "PostgresTarget",
    "Source",
    "SourceDatabase",
    "load_environment",
    "load_pipeline",
    "project_folder",
    "read_lock",
    "render_connector",
    "write_lock",
]
