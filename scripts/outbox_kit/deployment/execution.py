"""Brings database, topics, registry and connector to what the files say, in dependency order.

Safe to interrupt and to run again: every step looks before it acts, and the lock file is written as soon as
something is known that cannot be found out later.
"""

from __future__ import annotations

from collections.abc import Collection

from outbox_kit.changes import Change, System
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect import rollback as connect_rollback
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.offset_seeding import Start
from outbox_kit.deployment import agreement
from outbox_kit.deployment.context import Deployment
from outbox_kit.deployment.plan import all_subjects, connector_config, lock_for, make_plan, plan_connect, read_database
from outbox_kit.deployment.plan_model import Plan
from outbox_kit.deployment.refusals import refuse_dangerous, refuse_early_connector, refuse_moved
from outbox_kit.deployment.startup import wait_reading
from outbox_kit.kafka import apply as kafka_apply
from outbox_kit.kafka import state as kafka_state
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import apply as postgres_apply
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.advisory_lock import exclusive
from outbox_kit.postgres.state import ActualDatabase
from outbox_kit.progress import Progress
from outbox_kit.registry import apply as registry_apply
from outbox_kit.registry import state as registry_state


def apply(
    deployment: Deployment,
    progress: Progress,
    *,
    recover: bool = False,
    only: Collection[System] = (),
    allow: Collection[str] = (),
    shown: Plan | None = None,
    wait_seconds: float = 0,
    rollback: bool = True,
) -> list[Change]:
    """Make every pending change and wait until the connector runs; returns what was changed.

    The plan is made first, over all systems: what would be refused is refused before anything is touched, among it
    dangerous changes whose object is not in `allow`, and any difference from the plan that was `shown`.
    `recover` accepts another slot or database than the lock file's: the source epoch is raised, so that new
    states win over every older one, and the connector takes the slot's position instead of its own.
    With `rollback` the last good config is put back when the new one FAILED.
    A second apply of the pipeline waits for at most `wait_seconds`.
    Raises RefusedError, RejectedError, UnreachableError, WaitTimeoutError, ConfigurationError.
    """
    with exclusive(deployment.environment.source, deployment.pipeline.name, seconds=wait_seconds):
        plan = make_plan(deployment, recover=recover, only=only)
        if shown is not None:
            refuse_moved(shown, plan)
        refuse_early_connector(plan)
        refuse_dangerous(plan, allow)
        _begin_recovery(deployment, plan, progress)
        lock = prepare(deployment, plan, progress)
        if "connect" not in plan.systems:
            return list(plan.changes)
        connector = _apply_connect(deployment, plan, lock, progress, rollback=rollback)
        return [*(change for change in plan.changes if change.system != "connect"), *connector]


def prepare(deployment: Deployment, plan: Plan, progress: Progress) -> Lock:
    """Everything that the connector needs before it can start: database, topics, schemas; returns the lock."""
    planned = deployment.lock() or deployment.new_lock()
    lock = planned.model_copy(update={"cluster_id": plan.cluster_id or planned.cluster_id})
    systems = set(plan.systems)
    # The connector needs what the lock file has of database and registry, also where nothing changes there.
    if systems & {"postgres", "connect"}:
        lock = _apply_postgres(deployment, lock, plan.of("postgres"), progress)
    if "kafka" in systems:
        topics = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
        kafka_apply.apply(deployment.kafka, deployment.environment, topics, plan.of("kafka"), progress)
        deployment.write_lock(lock)
    if systems & {"registry", "connect"}:
        lock = _apply_registry(deployment, lock, plan, progress)
    agreement.refuse_other_config(deployment, plan, lock)
    return lock


def _begin_recovery(deployment: Deployment, plan: Plan, progress: Progress) -> None:
    """Stop the connector before the slot is looked for, where recovering or where a recovery was interrupted.

    The lock file says so first: whatever happens next, nothing starts it under the old epoch, and an apply goes on.
    """
    lock = lock_for(deployment, recover=plan.recover)
    if lock is None or lock.unfinished != "recover" or not {"postgres", "connect"} & set(plan.systems):
        return
    deployment.write_lock(lock)
    name = deployment.pipeline.connector.name
    if deployment.connect.config(name) is not None:
        progress(f"stop connector {name}")
        connect_lifecycle.stop(deployment.connect, name)


def _apply_postgres(deployment: Deployment, lock: Lock, changes: list[Change], progress: Progress) -> Lock:
    pipeline, environment = deployment.pipeline, deployment.environment
    with postgres_client.connected(environment.source) as connection:
        postgres_apply.apply(connection, pipeline, environment, changes, progress)
        source = postgres_apply.identity(connection, pipeline, environment, lock.source)
    lock = lock.model_copy(update={"source": source})
    deployment.write_lock(lock)
    return lock


def _apply_registry(deployment: Deployment, lock: Lock, plan: Plan, progress: Progress) -> Lock:
    registry_apply.apply(deployment.registry, all_subjects(deployment), plan.of("registry"), progress)
    subjects = registry_state.desired_subjects(deployment.pipeline)
    schemas = registry_apply.locked_schemas(deployment.registry, subjects)
    lock = lock.model_copy(update={"schemas": schemas})
    deployment.write_lock(lock)
    agreement.refuse_other_schemas(plan, lock)
    return lock


def _apply_connect(
    deployment: Deployment, plan: Plan, lock: Lock, progress: Progress, *, rollback: bool
) -> list[Change]:
    name, settings = deployment.pipeline.connector.name, deployment.environment.connector
    config = connector_config(deployment, lock)
    database = read_database(deployment)
    changes = plan_connect(deployment, lock, [], database, recover=plan.recover)
    agreement.refuse_other_changes(plan, changes)
    # Of a connector that has not run under this lock file, or not since the slot is another one, no position counts.
    fresh = lock.unfinished == "recover" or lock.config is None
    start = Start(deployment.pipeline.prefix, seed_for(database), database.wal_position, fresh)
    if changes:
        connect_lifecycle.refuse_invalid(deployment.connect, name, config, progress=progress)
        if lock.unfinished is None and not connect_lifecycle.is_at_rest(deployment.connect.status(name)):
            # From here on the connector may be stopped by us: a next apply must know that it is to run.
            lock = lock.model_copy(update={"unfinished": "update"})
            deployment.write_lock(lock)
    started = connect_lifecycle.apply(
        deployment.connect,
        name,
        config,
        changes,
        start=start,
        progress=progress,
        state=settings.state,
    )
    try:
        proven = _settle(deployment, progress, started=started)
    except connect_lifecycle.FailedError as failure:
        # After an interruption between writing the config and the resume, only the start is left to do.
        if not (rollback and any(change.object in (f"connector {name}", f"start {name}") for change in changes)):
            raise
        raise connect_rollback.put_back(
            deployment.connect,
            name,
            failure,
            config=config,
            last_good=lock.config,
            progress=progress,
            state=settings.state,
            stability_seconds=settings.stability_seconds,
        ) from None
    ended = lock.model_copy(update={"unfinished": None, "config": config if proven else lock.config})
    if ended != lock:
        deployment.write_lock(ended)
    return changes


def _settle(deployment: Deployment, progress: Progress, *, started: bool) -> bool:
    """Wait for the declared state, and for the first read of what was `started`; whether it was seen running."""
    settings = deployment.environment.connector
    proven = connect_lifecycle.settle(
        deployment.connect,
        deployment.pipeline.connector.name,
        progress,
        started=started,
        state=settings.state,
        stability_seconds=settings.stability_seconds,
    )
    if started and proven:
        wait_reading(deployment)
    return proven


def seed_for(database: ActualDatabase) -> dict[str, int]:
    """The slot's position now, not when it was made: what is before it, Kafka has (lsn.flush.mode=connector)."""
    if database.slot is None:
        msg = "the database comes before the connector"
        raise ValueError(msg)
    return connect_state.seed_offset(database.slot["confirmed_flush_lsn"])
