"""Load pipeline, environment and lock files, and render connector configs. No module here opens a connection."""

from outbox_kit.pipeline.environment import (
    Connect,
    ConnectorSettings,
    DeltaTarget,
    Environment,
    HttpService,
    Kafka,
    Login,
    PostgresTarget,
    SourceDatabase,
)
from outbox_kit.pipeline.loading import load_environment, load_files, load_pipeline, project_folder
from outbox_kit.pipeline.lock import (
    Lock,
    LockedDatabase,
    LockedSchema,
    LockedSource,
    LockedTopic,
    read_lock,
    write_lock,
)
from outbox_kit.pipeline.model import CANARY_AGGREGATE, Aggregate, Backfill, Columns, Materialization, Pipeline, Source
from outbox_kit.pipeline.overrides import Overrides
from outbox_kit.pipeline.render import UNKNOWN, render_connector
from outbox_kit.pipeline.schema_references import inlined_schema, registered_schema

__all__ = [
    "CANARY_AGGREGATE",
    "UNKNOWN",
    "Aggregate",
    "Backfill",
    "Columns",
    "Connect",
    "ConnectorSettings",
    "DeltaTarget",
    "Environment",
    "HttpService",
    "Kafka",
    "Lock",
    "LockedDatabase",
    "LockedSchema",
    "LockedSource",
    "LockedTopic",
    "Login",
    "Materialization",
    "Overrides",
    "Pipeline",
    "PostgresTarget",
    "Source",
    "SourceDatabase",
    "inlined_schema",
    "load_environment",
    "load_files",
    "load_pipeline",
    "project_folder",
    "read_lock",
    "registered_schema",
    "render_connector",
    "write_lock",
]
