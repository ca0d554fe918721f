"""Refuse commands that would be unsafe: check protection, source, lock file, skipped rows and plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from outbox_events.contract import lsn
from outbox_events.contract.source_sequence import WalPosition
from outbox_events.errors import RefusedError, WaitTimeoutError
from outbox_events.text import plural
from outbox_kit.connect import apply as connect_apply
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.state import ActualConnector
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.deployment.identity import refuse_foreign_publication, refuse_unapplied_names
from outbox_kit.deployment.plan_model import EXCLUDED_OBJECTS_MESSAGE, Plan
from outbox_kit.deployment.recorded_objects import has_own_connector, is_recorded_slot
from outbox_kit.deployment.source_epochs import highest_epoch, highest_version
from outbox_kit.kafka import apply as kafka_apply
from outbox_kit.kafka import state as kafka_state
from outbox_kit.pipeline import Lock, LockedSchema, LockedSource
from outbox_kit.pipeline.lock import RETAINED_VERSIONS
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import privileges
from outbox_kit.postgres import state as postgres_state
from outbox_kit.postgres.count_undelivered import count_between
from outbox_kit.postgres.replication_slot import Slot, read_counters, wait_inactive
from outbox_kit.postgres.state import ActualDatabase
from outbox_kit.results import Reporter
from outbox_kit.results.changes import Change
from outbox_kit.results.checks import Check, Severity, Status
from outbox_kit.results.repair_commands import APPLY_RECOVER_HINT

SESSION_END_S = 10.0
PLAN_INVALID = "the plan cannot be applied"


def refuse_protected(deployment: Deployment) -> None:
    """Raise RefusedError in an environment with `protected: true`."""
    if deployment.environment.protected:
        name = deployment.environment.name
        message = f"environment {name} is protected: `outbox destroy` and `outbox offsets reset` are refused"
        raise RefusedError(message, f"check -e; to run the command anyway, set `protected: false` in {name}.yaml")


def refuse_missing_privileges(deployment: Deployment) -> None:
    """Raise RefusedError if PostgreSQL lacks a setting, or a login lacks a privilege, without which `apply` fails."""
    pipeline, environment = deployment.pipeline, deployment.environment
    with postgres_client.connected(environment.source) as connection:
        access = privileges.read_access(connection, pipeline, environment)
    missing = [
        item for item in privileges.missing_privileges(pipeline, environment, access) if item.needed_by == "apply"
    ]
    if missing:
        items = "; ".join(f"{item.role} lacks {item.privilege}" for item in missing)
        raise RefusedError(f"missing in PostgreSQL: {items}", postgres_client.DOCTOR_HINT)


def require_connector(deployment: Deployment) -> ActualConnector:
    """Return the live connector. Raises RefusedError if it does not exist."""
    name = deployment.pipeline.connector.name
    actual = connect_state.read_actual(deployment.connect, name)
    if actual.config is None:
        raise RefusedError(f"connector {name!r} does not exist at {deployment.connect.url}", "run `outbox apply`")
    return actual


def require_unchanged_source(deployment: Deployment) -> tuple[Lock, ActualDatabase]:
    """Return the lock file and the database state. Raises RefusedError if lock file and database are inconsistent."""
    lock, source = require_locked_source(deployment, deployment.lock())
    refuse_unapplied_names(deployment, lock)
    database = deployment.read_database()
    refuse_foreign_publication(deployment, lock, database.publication)
    postgres_state.refuse_unsafe(deployment.pipeline, database, source)
    return lock, database


def require_locked_source(deployment: Deployment, lock: Lock | None) -> tuple[Lock, LockedSource]:
    """Return the lock file and its `source`. Raises RefusedError if the lock file does not contain the slot."""
    if lock is None or lock.source is None:
        raise RefusedError(
            f"lock file {deployment.lock_file} does not contain the slot: the live slot cannot be compared with it",
            "restore the lock file from version control, or run `outbox apply`",
        )
    return lock, lock.source


def refuse_lost_lock(deployment: Deployment, lock: Lock | None) -> None:
    """Raise RefusedError if the lock file has no source, but a record's source epoch is not below the lock file's."""
    if lock is not None and lock.source is not None:
        return
    lock_file_epoch = lock.source_epoch if lock else 1
    written_epoch = highest_epoch(deployment)
    if written_epoch >= lock_file_epoch:
        if lock is not None and lock.has_only_relay:
            message = f"the pipeline has only a relay, whose records have source epoch {written_epoch}"
            hint = "to create topics and schemas for the relay, run `outbox apply --only kafka --only registry`; to "
            move = f"replace it by the connector, stop every relay process, then {APPLY_RECOVER_HINT} "
            move += "(docs/relay-migration.md)"
            raise RefusedError(message, f"{hint}{move}")
        raise RefusedError(
            f"topics have records of source epoch {written_epoch}, but the lock file {deployment.lock_file} "
            f"{'does not contain the slot' if lock else 'does not exist'}: with epoch {lock_file_epoch} every sink "
            "would ignore new states",
            f"restore the lock file from version control; if the file is lost, {APPLY_RECOVER_HINT}",
        )


def refuse_epoch_behind_records(deployment: Deployment, lock: Lock) -> None:
    """Raise RefusedError if records have a higher source epoch than a connector that is created from the lock file."""
    written_epoch = highest_epoch(deployment)
    if written_epoch > lock.source_epoch:
        raise RefusedError(
            f"topics have records of source epoch {written_epoch}, but the lock file {deployment.lock_file} has "
            f"{lock.source_epoch}: sinks would ignore new states",
            f"restore the newest lock file from version control; if it is lost, {APPLY_RECOVER_HINT}",
        )


def refuse_used_slot(deployment: Deployment, slot: Slot | None) -> None:
    """Raise RefusedError if a client has read the slot, and the lock file does not record it.

    The client can be the connector of another pipeline, also at another Connect cluster. The live connector of the
    pipeline proves that the slot is its own.
    """
    name, lock = deployment.pipeline.source.slot, deployment.lock()
    if slot is None or is_recorded_slot(lock, name):
        return
    with postgres_client.connected(deployment.environment.source) as connection:
        counters = read_counters(connection, name)
    is_used = slot.active or (counters is not None and counters.total_txns > 0)
    if is_used and not has_own_connector(deployment):
        raise RefusedError(
            f"a client {'reads' if slot.active else 'has read'} slot {name!r}, which lock file {deployment.lock_file} "
            "does not record: the slot may belong to another pipeline",
            "set another source.slot, or restore the lock file from version control; if a connector of another tool "
            "reads the slot, run `outbox adopt CONNECTOR`; if no other pipeline uses the slot, "
            f"run `select pg_drop_replication_slot('{name}')`, then {APPLY_RECOVER_HINT}",
        )


def refuse_reader_elsewhere(deployment: Deployment, slot: Slot | None) -> None:
    """Raise RefusedError if a client reads the slot, but no connector at connect.url has it.

    The client can be the connector of this pipeline in another Connect cluster. The session of a connector that was
    deleted ends within SESSION_END_S.
    """
    if slot is None or not slot.active:
        return
    connectors = deployment.connect.listed_connectors().values()
    if any(connector.config.get("slot.name") == slot.name for connector in connectors):
        return
    try:
        with postgres_client.connected(deployment.environment.source) as connection:
            wait_inactive(connection, slot.name, seconds=SESSION_END_S)
    except WaitTimeoutError:
        message = f"a client reads slot {slot.name!r}, but no connector at {deployment.connect.url} has this slot"
        hint = "check connect.url: the connector may be in another Connect cluster; if it moves, stop it there first"
        raise RefusedError(message, hint) from None


def refuse_skipped_rows(deployment: Deployment, lock: Lock | None, slot: Slot | None, offset_lsn: int | None) -> None:
    """Raise RefusedError if no topic has a record of the rows between an inactive slot's LSN and the offset.

    A connector that has never run with this lock file is not checked, because its offset can come from a connector
    with other topics. After a crash, the offset is also beyond the slot, but the rows in between are on the topics. If
    compaction or retention has removed those rows' records, the refusal is wrong; a reset only sends the rows again.
    """
    if lock is None or lock.config is None or slot is None or slot.active or slot.confirmed_flush is None:
        return
    confirmed, source = slot.confirmed_flush, deployment.pipeline.source
    if not offset_lsn or offset_lsn <= confirmed:
        return
    with postgres_client.connected(deployment.environment.source) as connection:
        count = count_between(connection, source, after=confirmed, upto=offset_lsn)
    if not count or not _has_sequences(deployment, lock):
        return
    if WalPosition(lock.source_epoch, confirmed).precedes(highest_version(deployment)):
        return
    raise RefusedError(
        f"the offset of connector {deployment.pipeline.connector.name!r} is at {lsn.describe(offset_lsn)}, beyond slot "
        f"{source.slot!r} at {lsn.describe(confirmed)}, and no topic has a record of the {plural(count, 'event')} in "
        "between, so the connector would skip them",
        "run `outbox offsets reset`, and the connector sends them; to skip them, run `outbox stop`, then "
        "`outbox resume --skip-rows`",
    )


def _has_sequences(deployment: Deployment, lock: Lock) -> bool:
    """Return whether the connector's records have the header source_sequence, which only OutboxRouter writes."""
    config = deployment.connect.config(deployment.pipeline.connector.name)
    return connect_state.epoch(deployment.render(lock) if config is None else config) > 0


def refuse_violated_rules(checks: list[Check]) -> None:
    """Raise RefusedError if a lint rule of severity error failed."""
    violations = [check for check in checks if check.status is Status.FAIL and check.severity is Severity.ERROR]
    if violations:
        problems = "; ".join(f"{check.id}: {check.seen}, expected {check.expected}" for check in violations)
        raise RefusedError(f"the files violate rules: {problems}", violations[0].remedy or "run `outbox lint`")


def refuse_dangerous(plan: Plan, allowed: Collection[str], command: str = "") -> None:
    """Raise RefusedError for a dangerous change whose object is not in `allowed`. `command` makes the changes."""
    recover, only = ["--recover"] if plan.recover else [], [f"--only {system}" for system in plan.only]
    refuse_unallowed(plan.dangerous, allowed, command or " ".join(["outbox apply", *recover, *only]))


def refuse_unallowed(changes: Iterable[Change], allowed: Collection[str], command: str) -> None:
    """Raise RefusedError for a change whose object is not in `allowed`. `command` makes the changes."""
    changes = list(changes)
    refused_changes = [change for change in changes if change.object not in allowed]
    if refused_changes:
        dangers = "; ".join(f"{change.object}: {change.danger}" for change in refused_changes)
        words = [command, *(f'--allow "{change.object}"' for change in changes)]
        hint = f"to allow these changes, run `{' '.join(words)}`"
        raise RefusedError(f"no change of the plan was made, because it contains dangerous changes: {dangers}", hint)


def refuse_missing_prerequisites(plan: Plan) -> None:
    """Raise RefusedError if the connector requires pending changes to systems that --only excludes."""
    if plan.waits_for:
        raise RefusedError(
            f"{EXCLUDED_OBJECTS_MESSAGE}: {', '.join(plan.waits_for)}",
            "run `outbox apply` without --only, or run it first with --only for the systems of these objects",
        )


def refuse_invalid_topics(deployment: Deployment, plan: Plan) -> None:
    """Raise RejectedError if the brokers would reject a topic or its settings, before any system is changed."""
    topics = kafka_state.desired_topics(deployment.pipeline, deployment.environment)
    kafka_apply.validate(deployment.kafka, topics, plan.changes_of("kafka"))


def refuse_invalid_config(deployment: Deployment, plan: Plan, progress: Reporter) -> None:
    """Raise RefusedError if Connect would reject the connector config, as far as the config and the login exist."""
    created = {change.kind for change in plan.changes_of("postgres")} - {"slot", "publication"}
    if plan.lock is None or created or plan.changes_of("registry"):
        return
    config = deployment.render(plan.lock.model_copy(update={"schemas": plan.schemas}))
    connect_apply.refuse_invalid(deployment.connect, deployment.pipeline.connector.name, config, progress=progress)


def refuse_stale_plan(shown_plan: Plan, current_plan: Plan) -> None:
    """Raise RefusedError if the current plan differs from the plan that was shown. Name the first difference."""
    difference = _different_target(shown_plan, current_plan) or _different_changes(shown_plan, current_plan)
    if difference:
        raise RefusedError(f"{PLAN_INVALID}: {difference}", "run `outbox plan` again; this apply changed nothing")


def _different_target(shown_plan: Plan, current_plan: Plan) -> str:
    """Return the first difference in pipeline, environment or systems, which can differ even if the changes do not."""
    if (shown_plan.pipeline, shown_plan.environment) != (current_plan.pipeline, current_plan.environment):
        return f"it is for pipeline {shown_plan.pipeline!r} in environment {shown_plan.environment!r}"
    for system, planned, actual in (
        ("Kafka cluster", shown_plan.cluster_id, current_plan.cluster_id),
        ("registry", shown_plan.registry, current_plan.registry),
        ("database", shown_plan.database, current_plan.database),
    ):
        if planned is not None and planned != actual:
            return f"it was made for {system} {planned}, but the current {system} is {actual or 'unknown'}"
    return ""


def _different_changes(shown_plan: Plan, current_plan: Plan) -> str:
    planned = {(change.system, change.object, change.action): change for change in shown_plan.changes}
    for change in current_plan.changes:
        planned_change = planned.pop((change.system, change.object, change.action), None)
        if planned_change is None:
            return f"the change `{change.title}` was not in the plan"
        if _effect(planned_change) != _effect(change):
            return f"`{change.title}` was planned as {_effect_text(planned_change)}, and is now {_effect_text(change)}"
    if planned:
        return f"the change `{next(iter(planned.values())).title}` is no longer pending"
    if shown_plan.files != current_plan.files:
        return "pipeline, environment or schema files were changed"
    return ""


def refuse_unplanned_schemas(plan: Plan, lock: Lock) -> None:
    """Raise RefusedError unless the registry has exactly the schema versions, existing and new, that the plan has."""
    subjects = {change.name for change in plan.changes_of("registry") if change.kind == "schema"}
    for aggregate, versions in lock.schemas.items():
        new_versions = [entry for entry in versions[:1] if entry.subject in subjects]
        expected = [*new_versions, *plan.schemas.get(aggregate, [])][:RETAINED_VERSIONS]
        if versions != expected:
            actual, planned = _versions_text(versions), _versions_text(expected)
            raise _connector_refusal(f"{aggregate} has versions {actual} in the registry, but {planned} in the plan")


def refuse_unplanned_config(deployment: Deployment, plan: Plan, lock: Lock) -> None:
    """Raise RefusedError if the config without schemas is not as planned, for example because a template was edited."""
    config = deployment.render_without_schemas(lock)
    keys = sorted(key for key in plan.config.keys() | config.keys() if plan.config.get(key) != config.get(key))
    if keys:
        raise _connector_refusal(f"the connector's config would differ from the plan in {', '.join(keys)}")


def refuse_unplanned_changes(plan: Plan, changes: list[Change]) -> None:
    """Raise RefusedError if the connector's pending changes differ from the planned changes.

    If schemas are new, only objects and actions are compared, because the plan does not contain the new schema ids.
    """
    planned = plan.changes_of("connect")
    matches = [*map(_effect, planned)] == [*map(_effect, changes)]
    if any(change.kind == "schema" for change in plan.changes_of("registry")):
        # The registry can return the id of an earlier registration, which the connector's config already contains.
        matches = not changes or [(old.object, old.action) for old in planned] == [
            (new.object, new.action) for new in changes
        ]
    if not matches:
        raise _connector_refusal(
            f"the connector's pending changes are {_changes_text(changes)}, but {_changes_text(planned)} in the plan"
        )


def _effect(change: Change) -> tuple[str, ...]:
    """Return what a change does. Reason and danger are omitted, because their texts differ between releases."""
    return change.system, change.object, change.action, change.before, change.after


def _effect_text(change: Change) -> str:
    return " → ".join(filter(None, (change.before, change.after))) or change.reason


def _changes_text(changes: list[Change]) -> str:
    return ", ".join(f"{change.title} ({_effect_text(change)})" for change in changes) or "none"


def _versions_text(versions: list[LockedSchema]) -> str:
    return ", ".join(f"{entry.version} (id {entry.id})" for entry in versions) or "none"


def _connector_refusal(difference: str) -> RefusedError:
    hint = "run `outbox plan` again; this apply changed the other systems as planned, but not the connector"
    return RefusedError(f"{PLAN_INVALID}: {difference}", hint)
