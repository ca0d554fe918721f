"""Read the live state of PostgreSQL, Kafka, the registry and Connect for the checks of `outbox verify`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from outbox_events.errors import OutboxError
from outbox_kit.connect import verify_queries as connect_queries
from outbox_kit.connect.checks import ConnectState
from outbox_kit.connect.connector_config import outbox_router, parse_int, schema_versions
from outbox_kit.connect.state import stored_lsn
from outbox_kit.deployment import Deployment
from outbox_kit.kafka import state as kafka_state
from outbox_kit.kafka import verify_queries as kafka_queries
from outbox_kit.kafka.checks import KafkaState
from outbox_kit.kafka.verify_queries import read_internal_topics
from outbox_kit.pipeline import Lock, LockedSource
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import state as postgres_state
from outbox_kit.postgres import verify_queries as postgres_queries
from outbox_kit.postgres.aggregate_queries import QUERY_TIMEOUT_S, live_keys
from outbox_kit.postgres.checks import DatabaseState
from outbox_kit.postgres.recent_events import has_recent_event
from outbox_kit.postgres.row_sequence import sequence_repair
from outbox_kit.registry import state as registry_state
from outbox_kit.registry.checks import RegistryState
from outbox_kit.registry.client import SchemaVersion
from outbox_kit.results import Reporter
from outbox_kit.results.repair_commands import resend_steps
from outbox_kit.verification.key_sample import sample_keys

T = TypeVar("T")
# Maximum number of dead letters to count. One dead letter fails the check, so a large count does not have to be exact.
MAX_DEAD_LETTERS = 1000
DEAD_LETTER_TIMEOUT_S = 10
FIRST_KEYS = 100  # number of keys for which the state of a type with an empty topic is read
RegisteredSchemas = dict[tuple[str, int], SchemaVersion | None]
"""Registered schemas by subject and version number."""


@dataclass(frozen=True)
class ReadResult(Generic[T]):
    """State of one system, or the error that prevented reading the state."""

    value: T | None
    error: OutboxError | None = None


@dataclass(frozen=True)
class LiveState:
    """State of all systems. `heartbeat_offset` is the end offset of the heartbeat topic. `unsent_types` contains the
    types whose topic is empty although the database has a state and no recent outbox row (see has_recent_event).

    `registered` and `wal_position` are read after the config. `registered` contains the versions that the config names.
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
    unsent_types: ReadResult[list[str]] = ReadResult([])

    @property
    def config(self) -> dict[str, str] | None:
        """The live connector config, or None if the connector does not exist or Connect could not be read."""
        return self.connect.value.observed.actual.config if self.connect.value else None

    @property
    def offset_lsn(self) -> int | None:
        """The LSN of the connector's offset, 0 if there is no offset, or None if the offset could not be read."""
        observed = self.connect.value.observed if self.connect.value else None
        if observed is None or observed.errors.keys() & {"connectors", "offsets"}:
            return None
        return stored_lsn(observed.actual)


def connect_database(deployment: Deployment) -> AbstractContextManager[postgres_client.Connection]:
    """Connect to the source database, as source.verifier if it is set. Raises UnreachableError, RejectedError."""
    source = deployment.environment.source
    return postgres_client.connected(source, source.verifier, seconds=deployment.read_seconds)


def read_live_state(deployment: Deployment, lock: Lock, source: LockedSource, progress: Reporter) -> LiveState:
    """Read PostgreSQL, Kafka and the registry concurrently, so that several unresponsive systems cause only one delay.

    Connect is read after PostgreSQL, so that the connector's offset is not older than the slot's LSN. Values that
    depend on the live config are read last, and only from systems that could be read before.
    """
    for system in ("postgres", "kafka", "registry"):
        progress(f"read {system}")
    with ThreadPoolExecutor() as executor:
        postgres_future = executor.submit(try_read, partial(_read_postgres, deployment, lock, source))
        kafka_future = executor.submit(try_read, partial(_read_kafka, deployment, lock))
        registry_future = executor.submit(try_read, partial(_read_registry, deployment, lock))
    postgres, kafka, registry = postgres_future.result(), kafka_future.result(), registry_future.result()
    progress("read connect")
    cluster_id = kafka.value.cluster.id if kafka.value else None
    connect = try_read(lambda: _read_connect(deployment, lock, cluster_id))
    config = connect.value.observed.actual.config if connect.value else None
    wal_lsn = try_read(lambda: _read_wal_position(deployment)).value if postgres.value and connect.value else None
    registered = try_read(lambda: _read_registered(deployment, config or {})).value if registry.value else None
    topic = deployment.pipeline.heartbeat_topic
    end_offset = try_read(lambda: deployment.kafka.end_offset(topic)).value if kafka.value else None
    unsent = try_read(lambda: _read_unsent_types(deployment, kafka.value.empty_types if kafka.value else []))
    systems = postgres, kafka, registry, connect
    return LiveState(deployment, lock, *systems, wal_lsn or 0, registered or {}, end_offset, unsent)


def try_read(read_state: Callable[[], T]) -> ReadResult[T]:
    """Return the result of `read_state`, or the OutboxError that it raises."""
    try:
        return ReadResult(read_state())
    except OutboxError as error:
        return ReadResult(None, error)


def _read_unsent_types(deployment: Deployment, empty_types: list[str]) -> list[str]:
    """Read the business tables of the types with source.admin, because source.verifier cannot read business tables."""
    pipeline, seconds = deployment.pipeline, deployment.read_seconds or QUERY_TIMEOUT_S
    backfills = {name: backfill for name in empty_types if (backfill := pipeline.aggregates[name].backfill)}
    if not backfills or not pipeline.source.uses_table:
        return []
    names = []
    with postgres_client.connected(deployment.environment.source, seconds=seconds) as connection:
        for name, backfill in backfills.items():
            if not postgres_client.read_column_types(connection, backfill.table):  # the table does not exist yet
                continue
            keys = live_keys(connection, backfill, seconds=seconds, limit=FIRST_KEYS)
            # Otherwise, path.recent-rows compares the row, whose record can be in transit.
            if keys and not has_recent_event(connection, pipeline.source, name):
                names.append(name)
    return names


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


def _read_postgres(deployment: Deployment, lock: Lock, source: LockedSource) -> DatabaseState:
    pipeline, environment = deployment.pipeline, deployment.environment
    with connect_database(deployment) as connection:
        # If the identifier cannot be read, it is set to an empty text, and the check postgres.identity is unknown.
        identifier = try_read(lambda: postgres_client.read_system_identifier(connection)).value or ""
        actual = postgres_state.read_actual(connection, pipeline, environment, system_identifier=identifier)
        role_exists = actual.role is not None
        additional = postgres_queries.read_additional_state(connection, pipeline, environment, role_exists=role_exists)
    name = lock.database.name if lock.database else None
    repair = try_read(lambda: _read_sequence_repair(deployment)).value if pipeline.source.uses_table else ""
    additional = replace(additional, sequence_repair=repair)
    return DatabaseState(pipeline, environment, source, actual, additional, name, lock.cluster_id)


def _read_sequence_repair(deployment: Deployment) -> str:
    """Compare the sequence with the rows as source.admin, because source.verifier cannot read the sequence."""
    with postgres_client.connected(deployment.environment.source, seconds=deployment.read_seconds) as connection:
        return sequence_repair(connection, deployment.pipeline.source)


def _read_kafka(deployment: Deployment, lock: Lock) -> KafkaState:
    client, pipeline = deployment.kafka, deployment.pipeline
    topics = kafka_state.desired_topics(pipeline, deployment.environment)
    topic_names = [topic.name for topic in topics]
    cluster, actual = kafka_queries.read_cluster(client, topic_names), client.describe(topic_names)
    dead_letters: tuple[int, int] | None = (0, 0)
    if pipeline.dead_letter_topic in actual:
        limits = {"limit": MAX_DEAD_LETTERS, "seconds": DEAD_LETTER_TIMEOUT_S}
        dead_letters = try_read(partial(deployment.dead_letters().count_with_removed, **limits)).value
    dead_letter_count, removed_dead_letters = dead_letters or (None, 0)
    sample = try_read(lambda: sample_keys(deployment, [topic for topic in topics if topic.name in actual]))
    samples = sample.value or {}
    internal_topics = try_read(lambda: read_internal_topics(client, deployment.environment.connect)).value
    return KafkaState(
        pipeline=pipeline,
        kafka=client.kafka,
        recorded_cluster_id=lock.cluster_id,
        recorded_topics=lock.topics,
        topics=topics,
        actual=actual,
        cluster=cluster,
        dead_letter_count=dead_letter_count,
        removed_dead_letters=removed_dead_letters,
        misplaced_keys=None if sample.error else {name: entry.misplaced_count() for name, entry in samples.items()},
        internal_topics=internal_topics,
        sampling_error=sample.error.message if sample.error else "",
        open_transactions=try_read(lambda: client.open_transactions(actual)).value or {},
        empty_types=[entry.topic.aggregate_type or "" for entry in samples.values() if entry.is_empty],
        unsequenced={name: entry.unsequenced for name, entry in samples.items()},
    )


def _read_registry(deployment: Deployment, lock: Lock) -> RegistryState:
    subjects = registry_state.desired_subjects(deployment.pipeline)
    return RegistryState(
        subjects, registry_state.read_actual(deployment.registry, subjects), lock, deployment.registry.url
    )


def _read_connect(deployment: Deployment, lock: Lock, cluster_id: str | None) -> ConnectState:
    name, desired = deployment.pipeline.connector.name, deployment.render(lock)
    settings = deployment.environment.connector
    observed = connect_queries.observe(deployment.connect, deployment.environment.connect, name, desired)
    steps = resend_steps(deployment.pipeline)
    return ConnectState(name, desired, observed, settings.state, settings.exactly_once, cluster_id, lock.config, steps)
