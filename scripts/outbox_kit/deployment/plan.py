"""Plan the changes that bring all four systems from their actual to their desired state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace

from outbox_events.contract import lsn
from outbox_events.errors import ConfigurationError, RejectedError, UnreachableError, WaitTimeoutError
from outbox_kit.connect import apply as connect_apply
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.config_diff import with_fingerprint
from outbox_kit.connect.conflicts import refuse_duplicates
from outbox_kit.connect.foreign_changes import harmful_foreign_keys
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.deployment.first_backfills import topics_without_states
from outbox_kit.deployment.identity import (
    refuse_foreign_mark,
    refuse_lock_of_other_pipeline,
    refuse_other_connector_address,
    refuse_other_owners,
    refuse_other_prefix,
    refuse_wrong_cluster,
)
from outbox_kit.deployment.plan_model import SYSTEMS, Plan, RollOut
from outbox_kit.deployment.preconditions import (
    refuse_epoch_behind_records,
    refuse_lost_lock,
    refuse_missing_privileges,
    refuse_reader_elsewhere,
    refuse_skipped_rows,
    refuse_used_slot,
    refuse_violated_rules,
)
from outbox_kit.deployment.recorded_database import plan_database
from outbox_kit.deployment.recorded_objects import adoptions
from outbox_kit.deployment.source_epochs import next_epoch, refuse_relayed_states, refuse_running_relay
from outbox_kit.kafka import state as kafka_state
from outbox_kit.kafka.topic_identity import types_with_pending_backfill
from outbox_kit.linting import lint_deployment
from outbox_kit.pipeline import Lock, LockedSchema, Pipeline
from outbox_kit.pipeline.lock import RETAINED_VERSIONS
from outbox_kit.postgres import ddl
from outbox_kit.postgres import state as postgres_state
from outbox_kit.postgres.replication_slot import Slot
from outbox_kit.registry import apply as registry_apply
from outbox_kit.registry import state as registry_state
from outbox_kit.results.changes import Change, System
from outbox_kit.results.checks import Check
from outbox_kit.results.repair_commands import RESEND_HINT, added_fields_step, backfill_steps, resend_steps

CONNECTOR: System = "connect"
UNAVAILABLE = (UnreachableError, RejectedError, WaitTimeoutError)


def make_plan(
    deployment: Deployment,
    *,
    recover: bool = False,
    only: Collection[System] = (),
    takes_over: bool = False,
    drops_slot: bool = False,
) -> Plan:
    """Return a plan with every pending change, in the order in which apply makes them.

    `recover` accepts a replaced slot. `only` names the systems to change; if these include `connect`, all
    systems are read. With `takes_over`, the changed objects belong to the connector that the pipeline replaces. With
    `drops_slot`, the caller drops the slot before it applies the plan. Raises UnreachableError and ConfigurationError.
    Raises RefusedError if an apply would be unsafe.
    """
    if recover and only:
        hint = "omit --only, because a recovery changes both the database and the connector"
        raise ConfigurationError("--recover cannot be combined with --only", hint)
    lock = lock_for(deployment, recover=recover)
    refuse_violated_rules(check_rules(deployment, lock))
    requested_systems = tuple(system for system in SYSTEMS if system in only)
    systems = SYSTEMS if CONNECTOR in requested_systems or not requested_systems else requested_systems
    has_only_relay = lock is not None and not lock.has_connector
    if requested_systems and not (has_only_relay and {"kafka", "registry"} <= set(systems)):
        refuse_other_prefix(deployment, lock)  # otherwise, the connector would write to the previous topics
    plan = _plan_systems(deployment, lock, systems, recover=recover, takes_over=takes_over, drops_slot=drops_slot)
    moves = list(plan_database(deployment, deployment.lock(), systems, plan.cluster_id, recover=recover))
    plan = replace(plan, changes=(*moves, *plan.changes), lock=lock)
    if not requested_systems:
        return plan
    is_included = {change: change in moves or change.system in requested_systems for change in plan.changes}
    waits_for = tuple(change.object for change in plan.changes if not is_included[change])
    return replace(
        plan,
        changes=tuple(change for change in plan.changes if is_included[change]),
        roll_outs=plan.roll_outs if "registry" in requested_systems else (),
        only=requested_systems,
        waits_for=waits_for if CONNECTOR in requested_systems else (),
    )


def _plan_systems(
    deployment: Deployment,
    lock: Lock | None,
    systems: Collection[System],
    *,
    recover: bool,
    takes_over: bool,
    drops_slot: bool,
) -> Plan:
    """Return a plan with every pending change to `systems`."""
    # The database is read first, because most refusals depend only on the database.
    database, recorded = None, lock
    if {"postgres", CONNECTOR} & set(systems):
        refuse_missing_privileges(deployment)
        refuse_other_connector_address(deployment)
        database = deployment.read_database()
        database = replace(database, slot=None) if drops_slot else database
    elif lock is not None and lock.has_connector:
        refuse_foreign_mark(deployment, lock)
    changes = plan_postgres(deployment, lock, database) if database else []
    cluster_id = refuse_wrong_cluster(deployment, lock, systems)
    # A plan for other systems than Kafka and Connect does not need them, and they may not exist yet.
    if not recover and {"postgres", CONNECTOR} & set(systems):
        with nullcontext() if {"kafka", CONNECTOR} & set(systems) else suppress(*UNAVAILABLE):
            refuse_lost_lock(deployment, lock)
    with nullcontext() if CONNECTOR in systems else suppress(*UNAVAILABLE):
        refuse_other_owners(deployment, only_pipelines=True)
    if "kafka" in systems:
        changes += _with_first_backfills(deployment, lock, plan_kafka(deployment, lock), database)
    registry = plan_registry(deployment) if "registry" in systems else RegistryPlan()
    changes += registry.changes
    if CONNECTOR in systems and database is not None:
        if lock and not registry.changes:
            # Without pending changes in the registry, the schema ids are known before apply.
            lock = lock.model_copy(update={"schemas": registry.schemas})
        changes += plan_connect(deployment, lock, changes, database, recover=recover)
    if database is not None:
        if not takes_over:
            refuse_used_slot(deployment, database.slot)
        with nullcontext() if CONNECTOR in systems else suppress(*UNAVAILABLE):
            refuse_reader_elsewhere(deployment, database.slot)
    adopted = adoptions(
        deployment, recorded, systems, database, registry.schemas, cluster_id=cluster_id, takes_over=takes_over
    )
    changes = [*adopted, *changes]
    config = deployment.render_without_schemas(lock)
    return Plan(
        pipeline=deployment.pipeline.name,
        environment=deployment.environment.name,
        changes=tuple(changes),
        roll_outs=registry.roll_outs,
        recover=recover,
        files=files_fingerprint(deployment, config),
        cluster_id=cluster_id,
        registry=deployment.registry.url if "registry" in systems else None,
        database=f"{database.system_identifier}/{database.database}" if database else None,
        schemas=registry.schemas,
        config=config,
    )


def check_rules(deployment: Deployment, lock: Lock | None) -> list[Check]:
    return lint_deployment(deployment.pipeline, deployment.environment, deployment.render(lock))


def files_fingerprint(deployment: Deployment, config: dict[str, str]) -> str:
    """Return the SHA-256 of the desired state, without schema versions and ids."""
    topics = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    desired = {
        "config": config,
        "topics": [[topic.name, topic.partitions, topic.replication_factor, topic.config] for topic in topics],
        "subjects": [asdict(subject) for subject in all_subjects(deployment)],
        "source": deployment.pipeline.source.model_dump(mode="json"),
    }
    return hashlib.sha256(json.dumps(desired, sort_keys=True).encode()).hexdigest()


def lock_for(deployment: Deployment, *, recover: bool) -> Lock | None:
    """Return the lock. If `recover` is set, remove its `source`, and raise its source epoch above that of any record.

    The source epoch in the lock file can be lower than the connector's, for example after a revert in version control.
    """
    lock = deployment.lock()
    if not recover:
        return lock
    lock = lock or deployment.new_lock()
    refuse_lock_of_other_pipeline(deployment, lock)
    update = {"source": None, "source_epoch": next_epoch(deployment, lock), "unfinished": "recover"}
    return lock.model_copy(update=update)


def plan_postgres(deployment: Deployment, lock: Lock | None, database: postgres_state.ActualDatabase) -> list[Change]:
    """Return the pending changes to table, grants, publication and slot. Raises RefusedError if rows could be lost."""
    locked_source = lock.source if lock else None
    postgres_state.refuse_unsafe(deployment.pipeline, database, locked_source)
    changes = postgres_state.diff(deployment.pipeline, deployment.environment, database, locked_source)
    return add_dangers(changes, deployment.pipeline, lock)


def add_dangers(changes: list[Change], pipeline: Pipeline, lock: Lock | None) -> list[Change]:
    """Add its danger to each change of the source database."""
    return [replace(change, danger=_danger(change, pipeline, lock)) for change in changes] if lock else changes


def _danger(change: Change, pipeline: Pipeline, lock: Lock) -> str:
    # Only a recovery recreates a slot that is in the lock file: otherwise refuse_unsafe() raises if it is missing.
    if lock.unfinished == "recover":
        return _recreation_danger(change)
    if change.kind == "table" and change.action == "update":
        danger = (
            "rows that were written before the publication contained the new table never reach Kafka, unless the "
            "publication contains all tables"
        )
        return f"{danger}; afterwards {resend_steps(pipeline)}"
    retained_types = types_with_pending_backfill(lock.topics)
    if change.kind == "slot" and lock.source is None and retained_types:
        danger = "rows that were committed after `outbox destroy` never reach the retained topics"
        return f"{danger}; afterwards {resend_steps(pipeline, retained_types, pending=True)}"
    return ""


def _recreation_danger(change: Change) -> str:
    if change.kind not in ("slot", "publication"):
        return ""
    danger = (
        f"a new {change.kind} starts at the current LSN: rows after the connector's last offset are not sent to Kafka"
    )
    return f"{danger}; afterwards run {RESEND_HINT}"


def plan_kafka(deployment: Deployment, lock: Lock | None) -> list[Change]:
    """Return the pending changes to the topics. Raises RefusedError."""
    topics = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    actual = deployment.kafka.describe(topic.name for topic in topics)
    kafka_state.refuse_fewer_partitions(topics, actual)
    return kafka_state.diff(topics, actual, lock.topics if lock else {})


def _with_first_backfills(
    deployment: Deployment, lock: Lock | None, changes: list[Change], database: postgres_state.ActualDatabase | None
) -> list[Change]:
    """Add the commands of the backfill that a new topic needs to the reason of its creation."""
    has_creation = any(change.action == "create" for change in changes)
    types = topics_without_states(deployment, lock, changes) if database and has_creation else {}
    steps = {topic: backfill_steps(deployment.pipeline, [name], pending=True) for topic, name in types.items()}
    suffixes = {topic: f"; the business table has rows: after the apply, {step}" for topic, step in steps.items()}
    return [replace(change, reason=f"{change.reason}{suffixes.get(change.name, '')}") for change in changes]


@dataclass(frozen=True)
class RegistryPlan:
    """Changes to subjects, deployment steps for each schema change, and each aggregate type's registered versions."""

    changes: tuple[Change, ...] = ()
    roll_outs: tuple[RollOut, ...] = ()
    schemas: dict[str, list[LockedSchema]] = field(default_factory=dict)


def plan_registry(deployment: Deployment) -> RegistryPlan:
    """Return the pending changes to the subjects. Raises RefusedError."""
    subjects = all_subjects(deployment)
    actual = registry_state.read_actual(deployment.registry, subjects)
    registry_state.refuse_incompatible(deployment.registry, subjects, actual)
    aggregate_subjects = registry_state.desired_subjects(deployment.pipeline)
    existing_subjects = [subject for subject in aggregate_subjects if actual[subject.name].latest is not None]
    return RegistryPlan(
        tuple(registry_state.diff(subjects, actual)),
        plan_roll_outs(deployment.pipeline, aggregate_subjects, actual),
        registry_apply.recorded_schemas(deployment.registry, existing_subjects),
    )


def plan_roll_outs(
    pipeline: Pipeline, subjects: list[registry_state.Subject], actual: dict[str, registry_state.ActualSubject]
) -> tuple[RollOut, ...]:
    """Return the deployment steps, in safe order, for each aggregate type whose schema gets a new version."""
    roll_outs = []
    for subject in subjects:
        latest = actual[subject.name].latest
        if latest is None or registry_state.is_registered(subject, actual[subject.name]):
            continue
        added_fields, removed_fields = registry_state.fields_changed(latest.text, subject.text)
        written_fields = f"writes {', '.join(added_fields)}" if added_fields else ""
        omitted_fields = f"no longer writes {', '.join(removed_fields)}" if removed_fields else ""
        service_action = " and ".join(filter(None, (written_fields, omitted_fields))) or "writes the new version"
        until_then = "rows are encoded with the previous version"
        if added_fields and not removed_fields:
            until_then = f"records have the default of {', '.join(added_fields)}"
        fields_step = added_fields_step(pipeline, subject.aggregate_type, added_fields)
        steps = (
            f"run `outbox apply`: then the connector accepts {subject.aggregate_type} in the new and previous versions",
            f"deploy the service that {service_action}; until then, {until_then}",
            *filter(None, [fields_step]),
            "change this schema again only after every instance of the service is replaced "
            f"({RETAINED_VERSIONS} versions are supported)",
        )
        roll_outs.append(RollOut(subject.aggregate_type, tuple(added_fields), tuple(removed_fields), steps))
    return tuple(roll_outs)


def all_subjects(deployment: Deployment) -> list[registry_state.Subject]:
    """Return every subject in the order of registration: shared types before the aggregates that reference them."""
    pipeline = deployment.pipeline
    return [*registry_state.desired_references(pipeline), *registry_state.desired_subjects(pipeline)]


def connector_config(deployment: Deployment, lock: Lock | None) -> dict[str, str]:
    """Return the connector's rendered config, to which the pipeline's name and the fingerprint are added."""
    return with_fingerprint(deployment.pipeline.name, deployment.render(lock))


def plan_connect(
    deployment: Deployment,
    lock: Lock | None,
    changes_before: list[Change],
    database: postgres_state.ActualDatabase,
    *,
    recover: bool = False,
) -> list[Change]:
    """Return the pending changes to the connector, which follow `changes_before`. Raises RefusedError."""
    name, state = deployment.pipeline.connector.name, deployment.environment.connector.state
    actual = connect_state.read_actual(deployment.connect, name)
    is_recovery = lock is not None and lock.unfinished == "recover"
    connect_state.refuse_lower_epoch(name, actual, lock, increased=recover)
    if actual.config is None and lock is not None and not is_recovery:
        refuse_epoch_behind_records(deployment, lock)
    if not is_recovery:
        _refuse_inconsistent_offset(deployment, lock, actual, database)
    config = connector_config(deployment, lock)
    refuse_duplicates(name, config, actual.other_connectors)
    recorded = lock or deployment.new_lock()
    changes = connect_state.diff(name, config, actual, recorded.unfinished, state=state, names=recorded.names)
    harmful_keys = harmful_foreign_keys(config, actual.config, lock.config if lock else None)
    if lock is not None and is_recovery:
        changes = _with_recovery_dangers(deployment, lock, changes, actual, database)
    if harmful_keys:
        changes = _with_loss(changes, deployment.pipeline, harmful_keys)
    has_new_schema = any(change.kind == "schema" for change in changes_before)
    if changes and state == "running":
        refuse_running_relay(deployment, database)
    if (changes or has_new_schema) and state == "running" and not is_recovery:
        refuse_relayed_states(deployment.pipeline, lock, database)
        _refuse_unsafe_start(deployment, lock, connect_state.stored_lsn(actual), database.slot)
    if changes:
        connect_apply.refuse_missing_plugins(deployment.connect, config)
    if has_new_schema and not any(change.kind == "connector" and change.name == name for change in changes):
        changes = _with_new_schemas(deployment, lock, changes)
    return _with_new_epoch(changes, lock) if recover and lock is not None else changes


def _refuse_inconsistent_offset(
    deployment: Deployment, lock: Lock | None, actual: ActualConnector, database: postgres_state.ActualDatabase
) -> None:
    wal_position = database.wal_position
    if connect_state.stored_lsn(actual) > wal_position:
        # The connector was read after the database, and both advance with each write: read the database again.
        wal_position = deployment.read_database().wal_position
    connect_state.refuse_inconsistent_offset(deployment.pipeline.connector.name, actual, lock, wal_position)


def _refuse_unsafe_start(deployment: Deployment, lock: Lock | None, offset_lsn: int, slot: Slot | None) -> None:
    """Raise RefusedError if a connector that starts at its offset could lose rows.

    The slot was read before the connector, so a running connector's offset is at or beyond the slot's LSN.
    """
    name, confirmed = deployment.pipeline.connector.name, slot.confirmed_flush if slot else None
    connect_state.refuse_advanced_slot(name, deployment.pipeline.source.slot, offset_lsn, confirmed)
    refuse_skipped_rows(deployment, lock, slot, offset_lsn)


def _with_loss(changes: list[Change], pipeline: Pipeline, keys: list[str]) -> list[Change]:
    """Add the loss to the update of the config, in which another tool changed `keys`."""
    cause = f"another tool changed {', '.join(keys)}, so records can be missing, wrong or in another order"
    loss = f"{cause}; afterwards {resend_steps(pipeline)}"
    return [
        replace(change, loss=loss) if (change.kind, change.action) == ("connector", "update") else change
        for change in changes
    ]


def _with_recovery_dangers(
    deployment: Deployment,
    lock: Lock,
    changes: list[Change],
    actual: ActualConnector,
    database: postgres_state.ActualDatabase,
) -> list[Change]:
    """Add the danger of a slot that is beyond the discarded offset, and of a connector that this lock file is behind.

    A higher source epoch than that of the lock file was written with another lock file. It can be that of another
    environment, unless the publication has the mark of this deployment. `lock` has the epoch of the recovery.
    """
    pipeline, recorded = deployment.pipeline, deployment.lock() or deployment.new_lock()
    dangers = {}
    confirmed = database.slot.confirmed_flush if database.slot else None
    offset_lsn = connect_state.stored_lsn(actual)
    if connect_state.is_beyond_offset(confirmed, offset_lsn):
        gap = f"rows between the offset at {lsn.describe(offset_lsn)} and the slot at {lsn.describe(confirmed)}"
        dangers["offsets"] = f"{gap} are not sent to Kafka; afterwards {resend_steps(pipeline)}"
    marks = ddl.own_marks(pipeline, deployment.environment, recorded.cluster_id or deployment.kafka.cluster_id())
    is_unmarked = database.publication is not None and database.publication["comment"] not in marks
    written_epoch = lock.source_epoch - 1
    if written_epoch > recorded.source_epoch and is_unmarked:
        dangers["connector"] = (
            f"records or connector have source epoch {written_epoch}, but the lock file has {recorded.source_epoch}, "
            f"and publication {pipeline.source.publication} has no mark of this deployment: another environment may "
            "have written them"
        )
    own = pipeline.connector.name
    return [
        replace(change, danger="; ".join(filter(None, [change.danger, dangers[change.kind]])))
        if change.kind in dangers and change.name == own
        else change
        for change in changes
    ]


def _with_new_epoch(changes: list[Change], lock: Lock) -> list[Change]:
    epoch_change = f"source epoch {lock.source_epoch - 1} → {lock.source_epoch}: new states replace all older ones"
    return [
        replace(change, reason=f"{change.reason}; {epoch_change}") if change.kind == "connector" else change
        for change in changes
    ]


def _with_new_schemas(deployment: Deployment, lock: Lock | None, changes: list[Change]) -> list[Change]:
    """If the connector template uses schemas, add the connector update that new schema versions require."""
    if lock is not None and deployment.render(lock) == deployment.render_without_schemas(lock):
        return changes
    after = "schema versions and ids (known after apply)"
    name = deployment.pipeline.connector.name
    connector_update = Change("connect", "connector", name, "update", "the update restarts the task", "", after)
    later_changes = [change for change in changes if change.kind in ("start", "state")]
    return [*(change for change in changes if change not in later_changes), connector_update, *later_changes]
