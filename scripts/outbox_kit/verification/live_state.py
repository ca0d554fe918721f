"""Live state of PostgreSQL, Kafka, registry and Connect, as the checks of `outbox verify` use it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from outbox_kit.connect import verify_queries as connect_queries
from outbox_kit.connect.checks import ConnectState
from outbox_kit.connector_config import outbox_router, parse_int, schema_versions
from outbox_kit.deployment import Deployment
from outbox_kit.errors import OutboxKitError
from outbox_kit.kafka import dead_letters
from outbox_kit.kafka import state as kafka_state
from outbox_kit.kafka import verify_queries as kafka_queries
from outbox_kit.kafka.checks import KafkaState
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import state as postgres_state
from outbox_kit.postgres import verify_queries as postgres_queries
from outbox_kit.postgres.checks import DatabaseState
from outbox_kit.progress import Reporter
from outbox_kit.registry import state as registry_state
from outbox_kit.registry.checks import RegistryState
from outbox_kit.registry.client import SchemaVersion

T = TypeVar("T")
# Maximum number of dead letters to count. The check fails for any dead letter, so a large count need not be exact.
MAX_DEAD_LETTERS = 1000
DEAD_LETTER_TIMEOUT_S = 20
RegisteredSchemas = dict[tuple[str, int], SchemaVersion | None]
"""Registered schemas by subject and version number."""


@dataclass(frozen=True)
class ReadResult(Generic[T]):
    """State of one system, or the error that occurred when it was read."""

    value: T | None
    error: OutboxKitError | None = None


@dataclass(frozen=True)
class LiveState:
    """State of all four systems.

    `registered` are the schema versions that the live config names. They and `wal_position` are read after the config.
    """

    deployment: Deployment
    lock: Lock
    postgres: ReadResult[DatabaseState]
    kafka: ReadResult[KafkaState]
    registry: ReadResult[RegistryState]
    connect: ReadResult[ConnectState]
    wal_position: int
    registered: RegisteredSchemas
    heartbeat: int | None

    @property
    def config(self) -> dict[str, str] | None:
        """The live connector config."""
        return self.connect.value.observed.actual.config if self.connect.value else None


def database(deployment: Deployment) -> AbstractContextManager[postgres_client.Connection]:
    """Connect to the source database with the verifier's login. Raises UnreachableError, RejectedError."""
    return postgres_client.connected(deployment.environment.source, deployment.environment.source.verifier)


def read_live_state(deployment: Deployment, lock: Lock, progress: Reporter) -> LiveState:
    """Read every system once. PostgreSQL is first, so that the connector's offset is not older than the slot's LSN.

    A system that did not respond is not read again.
    """
    progress("read postgres")
    postgres = _read(lambda: _postgres(deployment, lock))
    progress("read kafka")
    kafka = _read(lambda: _kafka(deployment, lock))
    progress("read registry")
    registry = _read(lambda: _registry(deployment, lock))
    progress("read connect")
    cluster_id = kafka.value.cluster.id if kafka.value else None
    connect = _read(lambda: _connect(deployment, lock, cluster_id))
    config = connect.value.observed.actual.config if connect.value else None
    position = _read(lambda: _wal_position(deployment)).value if postgres.value and connect.value else None
    registered = _read(lambda: _registered(deployment, config or {})).value if registry.value else None
    topic = deployment.pipeline.heartbeat_topic
    heartbeat = _read(lambda: deployment.kafka.end_offset(topic)).value if kafka.value else None
    return LiveState(deployment, lock, postgres, kafka, registry, connect, position or 0, registered or {}, heartbeat)


def _read(read: Callable[[], T]) -> ReadResult[T]:
    try:
        return ReadResult(read())
    except OutboxKitError as error:
        return ReadResult(None, error)


def _wal_position(deployment: Deployment) -> int:
    with database(deployment) as connection:
        return int(postgres_client.read_server(connection)["wal_position"])


def _registered(deployment: Deployment, config: dict[str, str]) -> RegisteredSchemas:
    """Read the registered schema versions that the router of the live config names."""
    router = outbox_router(config)
    if router is None:
        return {}
    return {
        (subject, version): deployment.registry.version(subject, version)
        for name in router.aggregates
        for subject in [deployment.pipeline.subject_of(name)]
        for version in [parse_int(entry.label) for entry in schema_versions(router, name)]
    }


def _postgres(deployment: Deployment, lock: Lock) -> DatabaseState:
    pipeline, environment = deployment.pipeline, deployment.environment
    with database(deployment) as connection:
        # If the identifier cannot be read, it is empty, and the check postgres.identity is unknown.
        identifier = _read(lambda: postgres_client.read_system_identifier(connection)).value or ""
        actual = postgres_state.read_actual(connection, pipeline, environment, system_identifier=identifier)
        role_exists = actual.role is not None
        additional = postgres_queries.read_additional_state(connection, pipeline, environment, role=role_exists)
    return DatabaseState(pipeline, environment, lock.source, actual, additional)


def _kafka(deployment: Deployment, lock: Lock) -> KafkaState:
    client, pipeline = deployment.kafka, deployment.pipeline
    topics = kafka_state.desired_topics(pipeline, deployment.environment)
    names = [topic.name for topic in topics]
    cluster, actual = kafka_queries.read_cluster(client, names), client.describe(names)
    dead_letter_count: int | None = 0
    if pipeline.dead_letter_topic in actual:
        dead_letter_count = _read(
            partial(dead_letters.count, client, pipeline, limit=MAX_DEAD_LETTERS, seconds=DEAD_LETTER_TIMEOUT_S)
        ).value
    return KafkaState(client.kafka, lock.cluster_id, topics, actual, cluster, dead_letter_count)


def _registry(deployment: Deployment, lock: Lock) -> RegistryState:
    subjects = registry_state.desired_subjects(deployment.pipeline)
    return RegistryState(subjects, registry_state.read_actual(deployment.registry, subjects), lock)


def _connect(deployment: Deployment, lock: Lock, cluster_id: str | None) -> ConnectState:
    name, desired = deployment.pipeline.connector.name, deployment.render(lock)
    settings = deployment.environment.connector
    observed = connect_queries.observe(deployment.connect, deployment.environment.connect, name, desired)
    return ConnectState(name, desired, observed, settings.state, settings.exactly_once, cluster_id)
