"""Brings database, topics, registry and connector to what the files say, in dependency order.

Safe to interrupt and to run again: every step looks before it acts, and the lock file is written as soon as
something is known that cannot be found out later.
"""

from __future__ import annotations

from outbox_kit.changes import Change
from outbox_kit.connect import apply as connect_apply
from outbox_kit.connect import state as connect_state
from outbox_kit.deployment.context import Deployment
from outbox_kit.deployment.plan import lock_for, make_plan, plan_connect, read_database
from outbox_kit.kafka import apply as kafka_apply
from outbox_kit.kafka import state as kafka_state
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import apply as postgres_apply
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.state import ActualDatabase
from outbox_kit.progress import Progress
from outbox_kit.registry import apply as registry_apply
from outbox_kit.registry import state as registry_state


def apply(deployment: Deployment, progress: Progress, *, recover: bool = False) -> list[Change]:
    """Make every pending change and wait until the connector runs; returns what was changed.

    The plan is made first, over all systems: what would be refused is refused before anything is touched.
    `recover` accepts another slot or database than the lock file's: the source epoch is raised, so that new
    states win over every older one, and the connector takes the slot's position instead of its own.
    Raises RefusedError, RejectedError, UnreachableError, WaitTimeoutError.
    """
    changes = make_plan(deployment, recover=recover)
    if recover:
        _stop_connector(deployment, progress)
    lock = prepare(deployment, changes, progress, recover=recover)
    connector = _apply_connect(deployment, lock, progress)
    return [*(change for change in changes if change.system != "connect"), *connector]


def prepare(deployment: Deployment, changes: list[Change], progress: Progress, *, recover: bool = False) -> Lock:
    """Everything that the connector needs before it can start: database, topics, schemas; returns the lock."""
    lock = _apply_postgres(deployment, _of("postgres", changes), progress, recover=recover)
    topics = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    kafka_apply.apply(deployment.kafka, deployment.environment, topics, _of("kafka", changes), progress)
    return _apply_registry(deployment, lock, _of("registry", changes), progress)


def _of(system: str, changes: list[Change]) -> list[Change]:
    return [change for change in changes if change.system == system]


def _stop_connector(deployment: Deployment, progress: Progress) -> None:
    name = deployment.pipeline.connector.name
    if deployment.connect.config(name) is not None:
        progress(f"stop connector {name}")
        connect_apply.stop(deployment.connect, name)


def _apply_postgres(deployment: Deployment, changes: list[Change], progress: Progress, *, recover: bool) -> Lock:
    pipeline, environment = deployment.pipeline, deployment.environment
    lock = lock_for(deployment, recover=recover) or deployment.new_lock()
    with postgres_client.connected(environment.source) as connection:
        postgres_apply.apply(connection, pipeline, environment, changes, progress)
        source = postgres_apply.identity(connection, pipeline, environment, lock.source)
    lock = lock.model_copy(update={"source": source})
    deployment.write_lock(lock)
    return lock


def _apply_registry(deployment: Deployment, lock: Lock, changes: list[Change], progress: Progress) -> Lock:
    subjects = registry_state.desired_subjects(deployment.pipeline)
    registry_apply.apply(deployment.registry, subjects, changes, progress)
    schemas = registry_apply.locked_schemas(deployment.registry, subjects)
    lock = lock.model_copy(update={"schemas": schemas})
    deployment.write_lock(lock)
    return lock


def _apply_connect(deployment: Deployment, lock: Lock, progress: Progress) -> list[Change]:
    name = deployment.pipeline.connector.name
    config = deployment.render(lock)
    database = read_database(deployment)
    changes = plan_connect(deployment, lock, [], database)
    if changes:
        connect_apply.refuse_invalid(deployment.connect, name, config)
        if lock.unfinished is None and not connect_apply.is_at_rest(deployment.connect.status(name)):
            # From here on the connector may be stopped by us: a next apply must know that it is to run.
            lock = lock.model_copy(update={"unfinished": "update"})
            deployment.write_lock(lock)
    started = connect_apply.apply(
        deployment.connect,
        name,
        config,
        changes,
        prefix=deployment.pipeline.prefix,
        seed=seed_for(database),
        progress=progress,
    )
    connect_apply.settle(deployment.connect, name, progress, started=started)
    if lock.unfinished is not None:
        deployment.write_lock(lock.model_copy(update={"unfinished": None}))
    return changes


def seed_for(database: ActualDatabase) -> dict[str, int]:
    """The slot's position now, not when it was made: what is before it, Kafka has (lsn.flush.mode=connector)."""
    if database.slot is None:
        msg = "the database comes before the connector"
        raise ValueError(msg)
    return connect_state.seed_offset(database.slot["confirmed_flush_lsn"])
