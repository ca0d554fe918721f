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
    """State of one system, or the error because of which it could not be read."""

    value: T | None
    error: OutboxKitError | None = None


@dataclass(frozen=True)
class LiveState:
    """State of PostgreSQL, Kafka, registry and Connect. `heartbeat_offset` is the end offset of the heartbeat topic.

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
    heartbeat_offset: int | None

    @property
    def config(self) -> dict[str, str] | None:
        """The live connector config; None if there is no connector, or Connect could not be read."""
        return self.connect.value.observed.actual.config if self.connect.value else None


def connect_database(deployment: Deployment) -> AbstractContextManager[postgres_client.Connection]:
    """Connect to the source database, as source.verifier if configured. Raises UnreachableError, RejectedError."""
    return postgres_client.connected(deployment.environment.source, deployment.environment.source.verifier)


def read_live_state(deployment: Deployment, lock: Lock, progress: Reporter) -> LiveState:
    """Read the systems. PostgreSQL is read first, so that the connector's offset is not older than the slot's LSN.

    What depends on the live config is read last, but not from systems that could not be read before.
    """
    progress("read postgres")
    postgres = _try_read(lambda: _read_postgres(deployment, lock))
    progress("read kafka")
    kafka = _try_read(lambda: _read_kafka(deployment, lock))
    progress("read registry")
    registry = _try_read(lambda: _read_registry(deployment, lock))
    progress("read connect")
    cluster_id = kafka.value.cluster.id if kafka.value else None
    connect = _try_read(lambda: _read_connect(deployment, lock, cluster_id))
    config = connect.value.observed.actual.config if connect.value else None
    wal_lsn = _try_read(lambda: _read_wal_position(deployment)).value if postgres.value and connect.value else None
    registered = _try_read(lambda: _read_registered(deployment, config or {})).value if registry.value else None
    topic = deployment.pipeline.heartbeat_topic
    end_offset = _try_read(lambda: deployment.kafka.end_offset(topic)).value if kafka.value else None
    return LiveState(deployment, lock, postgres, kafka, registry, connect, wal_lsn or 0, registered or {}, end_offset)


def _try_read(read_state: Callable[[], T]) -> ReadResult[T]:
    try:
        return ReadResult(read_state())
    except OutboxKitError as error:
        return ReadResult(None, error)


def _read_wal_position(deployment: Deployment) -> int:
    with connect_database(deployment) as connection:
        return int(postgres_client.read_server(connection)["wal_position"])


def _read_registered(deployment: Deployment, config: dict[str, str]) -> RegisteredSchemas:
    """Read the registered schema versions that the router in the live config names."""
    router = outbox_router(config)
    if router is None:
        return {}
    return {
        (subject, version): deployment.registry.version(subject, version)
        for name in router.aggregates
        for subject in [deployment.pipeline.subject_of(name)]
        for version in [parse_int(entry.label) for entry in schema_versions(router, name)]
    }


def _read_postgres(deployment: Deployment, lock: Lock) -> DatabaseState:
    pipeline, environment = deployment.pipeline, deployment.environment
    with connect_database(deployment) as connection:
        # If the identifier cannot be read, it is empty, and the check postgres.identity is unknown.
        identifier = _try_read(lambda: postgres_client.read_system_identifier(connection)).value or ""
        actual = postgres_state.read_actual(connection, pipeline, environment, system_identifier=identifier)
        role_exists = actual.role is not None
        additional = postgres_queries.read_additional_state(connection, pipeline, environment, role_exists=role_exists)
    return DatabaseState(pipeline, environment, lock.source, actual, additional)


def _read_kafka(deployment: Deployment, lock: Lock) -> KafkaState:
    client, pipeline = deployment.kafka, deployment.pipeline
    topics = kafka_state.desired_topics(pipeline, deployment.environment)
    topic_names = [topic.name for topic in topics]
    cluster, actual = kafka_queries.read_cluster(client, topic_names), client.describe(topic_names)
    dead_letter_count: int | None = 0
    if pipeline.dead_letter_topic in actual:
        dead_letter_count = _try_read(
            partial(dead_letters.count, client, pipeline, limit=MAX_DEAD_LETTERS, seconds=DEAD_LETTER_TIMEOUT_S)
        ).value
    return KafkaState(client.kafka, lock.cluster_id, topics, actual, cluster, dead_letter_count)


def _read_registry(deployment: Deployment, lock: Lock) -> RegistryState:
    subjects = registry_state.desired_subjects(deployment.pipeline)
    return RegistryState(subjects, registry_state.read_actual(deployment.registry, subjects), lock)


def _read_connect(deployment: Deployment, lock: Lock, cluster_id: str | None) -> ConnectState:
    name, desired = deployment.pipeline.connector.name, deployment.render(lock)
    settings = deployment.environment.connector
    observed = connect_queries.observe(deployment.connect, deployment.environment.connect, name, desired)
    return ConnectState(name, desired, observed, settings.state, settings.exactly_once, cluster_id)
