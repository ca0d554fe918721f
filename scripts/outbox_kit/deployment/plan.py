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
from outbox_kit.registry import state as registry_state


def make_plan(deployment: Deployment) -> list[Change]:
    """Every pending change, in the order in which apply makes them; empty when all is as the files want it.

    Raises RefusedError where apply would refuse, UnreachableError where a system does not answer.
    """
    lock = deployment.lock()
    changes = [*plan_postgres(deployment, lock), *plan_kafka(deployment), *plan_registry(deployment)]
    return [*changes, *plan_connect(deployment, lock, changes)]


def plan_postgres(deployment: Deployment, lock: Lock | None) -> list[Change]:
    """Pending changes of the source database."""
    pipeline, environment = deployment.pipeline, deployment.environment
    with postgres_client.connected(environment.source) as connection:
        actual = postgres_state.read_actual(connection, pipeline, environment)
    postgres_state.refuse_unsafe(pipeline, actual, lock.source if lock else None)
    return postgres_state.diff(pipeline, environment, actual)


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


def plan_connect(deployment: Deployment, lock: Lock | None, before: list[Change]) -> list[Change]:
    """Pending changes of the connector, given those that come before it."""
    name = deployment.pipeline.connector.name
    actual = connect_state.read_actual(deployment.connect, name)
    seed = connect_state.seed_offset(lock.source.slot_lsn) if lock and lock.source else None
    config = deployment.render(lock)
    changes = connect_state.diff(name, config, actual, seed=seed)
    if changes:
        connect_apply.refuse_missing_plugins(deployment.connect, config)
    new_schema = any(change.object.startswith("schema ") for change in before)
    if new_schema and not changes:
        after = "schema versions and ids (known after apply)"
        return [Change("connect", f"connector {name}", "update", "restarts the task", "", after)]
    return changes
