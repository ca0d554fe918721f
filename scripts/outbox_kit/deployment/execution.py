"""Execute a plan in dependency order: database, topics, registry, connector.

An execution can be interrupted and repeated: each step first reads the actual state, and state that no system stores is
written to the lock file immediately.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from outbox_kit.connect import apply as connect_apply
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.offset_seeding import StartPosition
from outbox_kit.connect.rollback import roll_back
from outbox_kit.deployment import preconditions
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.deployment.first_backfills import topics_without_states
from outbox_kit.deployment.identity import READ_LIMIT_S, names_of, refuse_wrong_cluster
from outbox_kit.deployment.lag import wait_until_reading
from outbox_kit.deployment.plan import UNAVAILABLE, all_subjects, connector_config, make_plan, plan_connect
from outbox_kit.deployment.plan_model import Plan
from outbox_kit.deployment.preconditions import refuse_dangerous, refuse_invalid_topics, refuse_missing_prerequisites
from outbox_kit.deployment.recorded_database import read_database
from outbox_kit.kafka import apply as kafka_apply
from outbox_kit.kafka import state as kafka_state
from outbox_kit.kafka.topic_identity import require_backfill
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import apply as postgres_apply
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.replication_slot import wait_inactive
from outbox_kit.postgres.state import ActualDatabase
from outbox_kit.registry import apply as registry_apply
from outbox_kit.registry import state as registry_state
from outbox_kit.results import Reporter
from outbox_kit.results.changes import Change, System
from outbox_kit.results.repair_commands import resend_steps


def apply(
    deployment: Deployment,
    progress: Reporter,
    *,
    recover: bool = False,
    only: Collection[System] = (),
    allow: Collection[str] = (),
    shown_plan: Plan | None = None,
    wait_seconds: float = 0,
    rollback: bool = True,
    before_start: Callable[[Lock], None] | None = None,
    command: str = "",
) -> list[Change]:
    """Make every pending change, wait until the connector is in its declared state, and return the changes.

    The plan is made before the first change. Nothing is changed if the plan differs from `shown_plan`, or contains a
    dangerous change whose object is not in `allow`. `recover` accepts a replaced slot: the source epoch is
    increased, so that new states replace all older ones, and the connector starts at the slot's LSN. `rollback`
    restores the last working config if the connector fails with the new config. `before_start` is called with the new
    lock before the connector is changed. Its caller also completes the backfills that a recovery records as required.
    `command` is named in the hint to allow changes; by default, it is `outbox apply`. If another command that changes
    the pipeline is running, wait at most `wait_seconds` for that command to end.

    Raises RefusedError, RejectedError, UnreachableError, WaitTimeoutError, ConfigurationError.
    """
    with deployment.exclusive("apply", progress, seconds=wait_seconds):
        plan = make_plan(deployment, recover=recover, only=only)
        if shown_plan is not None:
            preconditions.refuse_stale_plan(shown_plan, plan)
        refuse_missing_prerequisites(plan)
        refuse_dangerous(plan, allow, command)
        refuse_invalid_topics(deployment, plan)
        _begin_recovery(deployment, plan, progress, requires_backfill=before_start is not None)
        lock = apply_prerequisites(deployment, plan, progress)
        if "connect" not in plan.systems:
            return list(plan.changes)
        if before_start is not None:
            before_start(lock)
        connector_changes = _apply_connect(deployment, plan, lock, progress, rollback=rollback)
        for roll_out in plan.roll_outs:
            for step in roll_out.steps[1:]:
                progress(f"schema of {roll_out.aggregate}: next, {step}")
        return [*(change for change in plan.changes if change.system != "connect"), *connector_changes]


def apply_prerequisites(deployment: Deployment, plan: Plan, progress: Reporter) -> Lock:
    """Make the changes that the connector requires (database, topics, schemas), and return the new lock."""
    systems, lock = set(plan.systems), _with_systems(deployment, plan, progress)
    # A deployed connector requires `source` and `schemas` in the lock file, even if nothing else changes.
    if systems & {"postgres", "connect"}:
        lock = _apply_postgres(deployment, lock, plan, progress)
    if "kafka" in systems:
        topics = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
        changes = plan.changes_of("kafka")
        created_topics = {change.name for change in changes if change.action == "create"}
        lock = lock.model_copy(update={"created_topics": sorted({*lock.created_topics, *created_topics})})
        deployment.write_lock(lock)
        kafka_apply.apply(deployment.kafka, topics, changes, progress)
        recorded_topics = kafka_apply.recorded_topics(deployment.kafka, topics, changes, lock.topics)
        if "postgres" in systems:
            recorded_topics = require_backfill(recorded_topics, topics_without_states(deployment, lock, changes))
        lock = lock.model_copy(update={"topics": recorded_topics, "created_topics": []})
        deployment.write_lock(lock)
    if systems & {"registry", "connect"}:
        lock = _apply_registry(deployment, lock, plan, progress)
    preconditions.refuse_unplanned_config(deployment, plan, lock)
    return lock


def _begin_recovery(deployment: Deployment, plan: Plan, progress: Reporter, *, requires_backfill: bool) -> None:
    """Record a new or interrupted recovery in the lock file, then stop the connector.

    Until an apply completes the recovery, the lock file prevents the connector from starting with the old epoch. With
    `requires_backfill`, the lock file also shows afterwards that the caller has not sent the missing events yet.
    """
    lock = plan.lock
    if lock is None or lock.unfinished != "recover" or not {"postgres", "connect"} & set(plan.systems):
        return
    if requires_backfill:
        lock = lock.model_copy(update={"topics": require_backfill(lock.topics)})
    deployment.write_lock(lock)
    name = deployment.pipeline.connector.name
    if deployment.connect.config(name) is not None:
        progress(f"stop connector {name}")
        connect_lifecycle.stop(deployment.connect, name)


def _apply_postgres(deployment: Deployment, lock: Lock, plan: Plan, progress: Reporter) -> Lock:
    pipeline, environment, changes = deployment.pipeline, deployment.environment, plan.changes_of("postgres")
    if any(change.danger for change in changes):
        # These changes lose rows. The loss is recorded first, so that an interruption does not hide it.
        lock = _with_required_backfill(deployment, lock, plan.systems)
    with postgres_client.connected(environment.source) as connection:
        postgres_apply.apply(connection, pipeline, environment, changes, progress, lock.cluster_id)
        source = postgres_apply.source_identity(connection, pipeline, environment, lock.source, changes)
    lock = lock.model_copy(update={"source": source})
    deployment.write_lock(lock)
    return lock


def _with_systems(deployment: Deployment, plan: Plan, progress: Reporter) -> Lock:
    """Record cluster, database and prefix before the first change, also of systems that --only excludes.

    Later commands compare them. If a system is unreachable, they are refused until another apply records it.
    """
    lock = deployment.lock() or deployment.new_lock()
    update: dict[str, Any] = {"prefix": deployment.pipeline.prefix}
    with _reported(progress), deployment.bounded(READ_LIMIT_S) as bounded:
        update["cluster_id"] = plan.cluster_id or lock.cluster_id or refuse_wrong_cluster(bounded, lock, ["kafka"])
    if lock.source is None or "postgres" in plan.systems:
        with _reported(progress):
            update["database"] = read_database(deployment, update.get("cluster_id", lock.cluster_id))
    lock = lock.model_copy(update=update)
    deployment.write_lock(lock)
    return lock


@contextmanager
def _reported(progress: Reporter) -> Iterator[None]:
    """Report a system that is not available, so that the lock file does not record it."""
    try:
        yield
    except UNAVAILABLE as error:
        progress(f"not recorded in the lock file: {error.message}; {error.hint}")


def _with_required_backfill(deployment: Deployment, lock: Lock, systems: Collection[System]) -> Lock:
    """Record in the lock file that every state topic needs a backfill, and return the new lock."""
    desired = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    topics = lock.topics
    if not topics and "kafka" in systems:  # the lock file was lost; the plan has adopted the topics
        topics = kafka_apply.existing_topics(deployment.kafka, desired, {})
    lock = lock.model_copy(update={"topics": require_backfill(topics)})
    deployment.write_lock(lock)
    return lock


def _apply_registry(deployment: Deployment, lock: Lock, plan: Plan, progress: Reporter) -> Lock:
    changes = plan.changes_of("registry")
    if changes:  # before the first change, so that an interrupted apply recognizes its subjects
        created = {change.name for change in changes if (change.kind, change.action) == ("schema", "create")}
        update: dict[str, Any] = {"created_subjects": sorted({*lock.created_subjects, *created})}
        lock = lock.model_copy(update={**update, "registry_url": deployment.registry.url})
        deployment.write_lock(lock)
    registry_apply.apply(deployment.registry, all_subjects(deployment), changes, progress)
    subjects = registry_state.desired_subjects(deployment.pipeline)
    schemas = registry_apply.recorded_schemas(deployment.registry, subjects)
    update = {"schemas": schemas, "registry_url": deployment.registry.url, "created_subjects": []}
    lock = lock.model_copy(update=update)
    deployment.write_lock(lock)
    preconditions.refuse_unplanned_schemas(plan, lock)
    return lock


def _apply_connect(
    deployment: Deployment, plan: Plan, lock: Lock, progress: Reporter, *, rollback: bool
) -> list[Change]:
    client, name, settings = deployment.connect, deployment.pipeline.connector.name, deployment.environment.connector
    config = connector_config(deployment, lock)
    database = deployment.read_database()
    changes = plan_connect(deployment, lock, [], database, recover=plan.recover)
    preconditions.refuse_unplanned_changes(plan, changes)
    start = start_position(deployment, lock, database)
    if lock.config is not None or lock.unfinished == "recover":  # otherwise, another deployment stored the offset
        start = replace(start, record_gap=partial(_record_gap, deployment, plan.systems, progress))
    skips_rows = any(change.kind == "offsets" and change.danger for change in changes)
    if skips_rows or any(change.loss for change in changes):
        lock = _with_required_backfill(deployment, lock, plan.systems)
    if changes:
        connect_apply.refuse_invalid(client, name, config, progress=progress)
        if lock.unfinished is None and not connect_lifecycle.is_paused_or_stopped(client.status(name)):
            # The next steps may stop the connector. If this apply is interrupted, the next apply must start it.
            lock = lock.model_copy(update={"unfinished": "update"})
            deployment.write_lock(lock)
    pending = changes
    deletions = [change for change in changes if change.action == "delete"]
    if deletions:
        connect_apply.apply(client, name, config, deletions, start=start, progress=progress, state=settings.state)
        if not connect_lifecycle.is_running(client.status(name)):
            # Until then, a connector with another name can advance the slot.
            start = replace(_position_after_release(deployment, lock), record_gap=start.record_gap)
        pending = [change for change in changes if change not in deletions]
    started = connect_apply.apply(client, name, config, pending, start=start, progress=progress, state=settings.state)
    lock = deployment.lock() or lock
    has_run = _wait_or_roll_back(deployment, config, changes, lock.config, progress, started=started, rollback=rollback)
    update = {"unfinished": None, "names": names_of(config), "config": config if has_run else lock.config}
    final_lock = lock.model_copy(update=update)
    if final_lock != lock:
        deployment.write_lock(final_lock)
    return changes


def _record_gap(deployment: Deployment, systems: Collection[System], progress: Reporter) -> None:
    """Record that every topic needs a backfill, because the connector starts after rows that it has not sent."""
    _with_required_backfill(deployment, deployment.lock() or deployment.new_lock(), systems)
    progress(f"rows before the slot's LSN are not sent to Kafka; afterwards {resend_steps(deployment.pipeline)}")


def _wait_or_roll_back(
    deployment: Deployment,
    config: dict[str, str],
    changes: list[Change],
    last_working: dict[str, str] | None,
    progress: Reporter,
    *,
    started: bool,
    rollback: bool,
) -> bool:
    """Wait for the declared state, and return whether the connector has run.

    If the connector fails with a new config, restore the `last_working` config. The failure is raised in any case.
    """
    client, name, settings = deployment.connect, deployment.pipeline.connector.name, deployment.environment.connector
    state, stability_seconds = settings.state, settings.stability_seconds
    try:
        has_run = connect_lifecycle.wait_for_declared_state(
            client, name, progress, started=started, state=state, stability_seconds=stability_seconds
        )
        if started and has_run:
            wait_until_reading(deployment)
        return has_run
    except connect_lifecycle.FailedError as failure:
        # If an earlier apply was interrupted after it had written the config, the only change is the start.
        if not (rollback and any(change.kind in ("connector", "start") and change.name == name for change in changes)):
            raise
        raise roll_back(
            client,
            name,
            failure,
            config=config,
            last_working=last_working,
            progress=progress,
            state=state,
            stability_seconds=stability_seconds,
        ) from None


def _position_after_release(deployment: Deployment, lock: Lock) -> StartPosition:
    """Wait until the slot is inactive, and return the start position that its confirmed LSN determines."""
    with postgres_client.connected(deployment.environment.source) as connection:
        wait_inactive(connection, deployment.pipeline.source.slot)
    return start_position(deployment, lock, deployment.read_database())


def start_position(deployment: Deployment, lock: Lock, database: ActualDatabase) -> StartPosition:
    """Return the start position: the slot's confirmed LSN. Rows below it are in Kafka (lsn.flush.mode=connector).

    A stored offset is ignored if the connector has not run since the lock file was created or the slot was replaced.
    """
    if database.slot is None or database.slot.confirmed_flush is None:
        raise ValueError("the slot does not exist, or has no confirmed LSN")
    ignore_stored_offset = lock.unfinished == "recover" or lock.config is None
    return StartPosition(
        deployment.pipeline.prefix, database.slot.confirmed_flush, database.wal_position, ignore_stored_offset
    )
