"""Everything that verify reads, system by system. A system that does not answer is an error in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from outbox_kit.connect import checks as connect_checks
from outbox_kit.connect import verify_queries as connect_inspection
from outbox_kit.deployment import Deployment
from outbox_kit.errors import OutboxKitError
from outbox_kit.kafka import checks as kafka_checks
from outbox_kit.kafka import dead_letters
from outbox_kit.kafka import state as kafka_state
from outbox_kit.kafka import verify_queries as kafka_inspection
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import checks as postgres_checks
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import state as postgres_state
from outbox_kit.postgres import verify_queries as postgres_inspection
from outbox_kit.progress import Progress
from outbox_kit.registry import checks as registry_checks
from outbox_kit.registry import state as registry_state
from outbox_kit.registry.client import SchemaVersion
from outbox_kit.verification.routes import routes

L = TypeVar("L")


@dataclass(frozen=True)
class Answer(Generic[L]):
    """What one system showed, or why it showed nothing."""

    look: L | None
    error: OutboxKitError | None = None


@dataclass(frozen=True)
class Later:
    """What had to be read after the connector: the server's position, the versions that the live config names."""

    position: int
    registered: dict[tuple[str, int], SchemaVersion | None]


@dataclass(frozen=True)
class World:
    """All four systems at one time."""

    deployment: Deployment
    lock: Lock
    postgres: Answer[postgres_checks.Look]
    kafka: Answer[kafka_checks.Look]
    registry: Answer[registry_checks.Look]
    connect: Answer[connect_checks.Look]
    later: Later
    heartbeat: int | None


@contextmanager
def database(deployment: Deployment) -> Iterator[postgres_client.Connection]:
    """The source database, as verify logs in to it. Raises UnreachableError, RejectedError."""
    source = deployment.environment.source
    with postgres_client.connected(source, source.verifier) as connection:
        yield connection


def read_world(deployment: Deployment, lock: Lock, progress: Progress) -> World:
    """Look at every system once. The database first: the connector's offset must not be older than the slot's."""
    progress("look at postgres")
    postgres = _ask(lambda: _postgres(deployment, lock))
    progress("look at kafka")
    kafka = _ask(lambda: _kafka(deployment, lock))
    progress("look at registry")
    registry = _ask(lambda: _registry(deployment, lock))
    progress("look at connect")
    cluster = kafka.look.cluster.id if kafka.look else None
    connect = _ask(lambda: _connect(deployment, lock, cluster))
    later = _later(deployment, postgres, registry, connect)
    topic = deployment.pipeline.heartbeat_topic
    heartbeat = _ask(lambda: kafka_inspection.end_offset(deployment.environment.kafka, topic)) if kafka.look else None
    return World(
        deployment, lock, postgres, kafka, registry, connect, later, heartbeat.look if heartbeat is not None else None
    )


def _later(
    deployment: Deployment,
    postgres: Answer[postgres_checks.Look],
    registry: Answer[registry_checks.Look],
    connect: Answer[connect_checks.Look],
) -> Later:
    """Only where the first look was answered: a system that is down is waited for once."""
    position = _ask(lambda: _position(deployment)).look if postgres.look and connect.look else None
    config = connect.look.observed.actual.config if connect.look else None
    versions = _ask(lambda: _registered(deployment, config or {})).look if registry.look else None
    return Later(position or 0, versions or {})


def _position(deployment: Deployment) -> int:
    with database(deployment) as connection:
        return int(postgres_client.server(connection)["wal_position"])


def _registered(deployment: Deployment, config: dict[str, str]) -> dict[tuple[str, int], SchemaVersion | None]:
    """By subject and version number, as far as the live config names them."""
    wanted = [
        (deployment.pipeline.subject_of(kind), v.number) for kind, r in routes(config).items() for v in r.versions
    ]
    return {(subject, number): deployment.registry.version(subject, number) for subject, number in wanted}


def _ask(read: Callable[[], L]) -> Answer[L]:
    try:
        return Answer(read())
    except OutboxKitError as error:
        return Answer(None, error)


def _postgres(deployment: Deployment, lock: Lock) -> postgres_checks.Look:
    pipeline, environment = deployment.pipeline, deployment.environment
    with database(deployment) as connection:
        identity = _ask(lambda: postgres_client.system_identifier(connection))
        actual = postgres_state.look_at(connection, pipeline, environment, identity.look or "")
        role = actual.role is not None
        details = postgres_inspection.read_details(connection, pipeline, environment, role=role)
    return postgres_checks.Look(pipeline, environment, lock.source, actual, details)


def _kafka(deployment: Deployment, lock: Lock) -> kafka_checks.Look:
    kafka, pipeline = deployment.environment.kafka, deployment.pipeline
    topics = kafka_state.desired_topics(pipeline, deployment.environment)
    names = [topic.name for topic in topics]
    cluster = kafka_inspection.read_cluster(kafka, names)
    letters = _ask(
        lambda: dead_letters.unacknowledged(kafka, pipeline.dead_letter_topic, dead_letters.group_of(pipeline.name))
    )
    return kafka_checks.Look(kafka, lock.cluster_id, topics, deployment.kafka.describe(names), cluster, letters.look)


def _registry(deployment: Deployment, lock: Lock) -> registry_checks.Look:
    subjects = registry_state.desired_subjects(deployment.pipeline)
    return registry_checks.Look(subjects, registry_state.read_actual(deployment.registry, subjects), lock)


def _connect(deployment: Deployment, lock: Lock, cluster: str | None) -> connect_checks.Look:
    name, desired = deployment.pipeline.connector.name, deployment.render(lock)
    settings = deployment.environment.connector
    observed = connect_inspection.observe(deployment.connect, deployment.environment.connect, name, desired)
    return connect_checks.Look(name, desired, observed, settings.state, settings.exactly_once, cluster)
