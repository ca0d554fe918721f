"""What `apply` would change: desired state against actual state, over all four systems."""

from __future__ import annotations

from outbox_kit.changes import Change
from outbox_kit.connect import apply as connect_apply
from outbox_kit.connect import state as connect_state
from outbox_kit.deployment.context import Deployment
from outbox_kit.kafka import state as kafka_state
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import state as postgres_state
from outbox_kit.registry import apply as registry_apply
from outbox_kit.registry import state as registry_state


def make_plan(deployment: Deployment, *, recover: bool = False) -> list[Change]:
    """Every pending change, in the order in which apply makes them; empty when all is as the files want it.

    With `recover` the slot or the database may be another one than the lock file's. Raises RefusedError where
    apply would refuse, UnreachableError where a system does not answer.
    """
    lock = lock_for(deployment, recover=recover)
    database = read_database(deployment)
    postgres_state.refuse_unsafe(deployment.pipeline, database, lock.source if lock else None)
    changes = postgres_state.diff(deployment.pipeline, deployment.environment, database)
    changes += plan_kafka(deployment)
    changes += plan_registry(deployment)
    if lock and not any(change.system == "registry" for change in changes):
        # What apply will lock is known already: so what is shown is what will be done.
        subjects = registry_state.desired_subjects(deployment.pipeline)
        schemas = registry_apply.locked_schemas(deployment.registry, subjects)
        lock = lock.model_copy(update={"schemas": schemas})
    return [*changes, *plan_connect(deployment, lock, changes, database, recover=recover)]


def lock_for(deployment: Deployment, *, recover: bool) -> Lock | None:
    """The lock file; when recovering, without the source that is gone, and one epoch higher."""
    lock = deployment.lock()
    if not recover:
        return lock
    lock = lock or deployment.new_lock()
    update = {"source": None, "source_epoch": lock.source_epoch + 1, "unfinished": "recover"}
    return lock.model_copy(update=update)


def read_database(deployment: Deployment) -> postgres_state.ActualDatabase:
    """The source database as it is."""
    with postgres_client.connected(deployment.environment.source) as connection:
        return postgres_state.read_actual(connection, deployment.pipeline, deployment.environment)


def plan_kafka(deployment: Deployment) -> list[Change]:
    """Pending changes of the topics."""
    topics = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    actual = deployment.kafka.describe(topic.name for topic in topics)
    kafka_state.refuse_unsafe(topics, actual)
    return kafka_state.diff(topics, actual)


def plan_registry(deployment: Deployment) -> list[Change]:
    """Pending changes of the subjects."""
    subjects = registry_state.desired_subjects(deployment.pipeline)
    actual = registry_state.read_actual(deployment.registry, subjects)
    registry_state.refuse_incompatible(deployment.registry, subjects, actual)
    return registry_state.diff(subjects, actual)


def plan_connect(
    deployment: Deployment,
    lock: Lock | None,
    before: list[Change],
    database: postgres_state.ActualDatabase,
    *,
    recover: bool = False,
) -> list[Change]:
    """Pending changes of the connector, given those that come before it."""
    name = deployment.pipeline.connector.name
    actual = connect_state.read_actual(deployment.connect, name)
    unfinished = lock.unfinished if lock else None
    connect_state.refuse_epoch(name, actual, lock, raised=recover)
    if unfinished != "recover":
        if connect_state.position(actual) > database.wal_position:
            database = read_database(deployment)  # on a busy outbox both have moved since
        connect_state.refuse_position(name, actual, lock, database.wal_position)
    config = deployment.render(lock)
    changes = connect_state.diff(name, config, actual, unfinished)
    if changes:
        connect_apply.refuse_missing_plugins(deployment.connect, config)
    new_schema = any(change.object.startswith("schema ") for change in before)
    if new_schema and not changes:
        after = "schema versions and ids (known after apply)"
        return [Change("connect", f"connector {name}", "update", "restarts the task", "", after)]
    return changes
