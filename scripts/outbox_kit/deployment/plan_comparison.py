"""Conditions under which apply refuses a plan: the state changed since the plan was made."""

from __future__ import annotations

from outbox_kit.changes import Change
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.deployment.plan_model import Plan
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import Lock, LockedSchema
from outbox_kit.pipeline.lock import RETAINED_VERSIONS

STATE_CHANGED = "the state changed since the plan was made"


def refuse_stale_plan(shown_plan: Plan, current: Plan) -> None:
    """Raise RefusedError with the first difference between the plan that was shown and the current one."""
    difference = _different_target(shown_plan, current) or _different_changes(shown_plan, current)
    if difference:
        raise RefusedError(f"{STATE_CHANGED}: {difference}", "run `outbox plan` again; nothing was changed")


def _different_target(shown_plan: Plan, current: Plan) -> str:
    """Return the first difference in pipeline or systems. Other environments can have the same pending changes."""
    if (shown_plan.pipeline, shown_plan.environment) != (current.pipeline, current.environment):
        return f"the plan is for {shown_plan.pipeline!r} in {shown_plan.environment!r}"
    for system, planned, actual in (
        ("Kafka cluster", shown_plan.cluster_id, current.cluster_id),
        ("registry", shown_plan.registry, current.registry),
        ("database", shown_plan.database, current.database),
    ):
        if planned is not None and planned != actual:
            return f"the plan was made for {system} {planned}, but the current {system} is {actual or 'unknown'}"
    return ""


def _different_changes(shown_plan: Plan, current: Plan) -> str:
    planned = {(change.system, change.object, change.action): change for change in shown_plan.changes}
    for change in current.changes:
        planned_change = planned.pop((change.system, change.object, change.action), None)
        if planned_change is None:
            return f"{change.title} was not in the plan"
        if planned_change != change:
            return f"{change.title} was planned as {_effect(planned_change)}, and is now {_effect(change)}"
    if planned:
        return f"{next(iter(planned.values())).title} is no longer pending"
    if shown_plan.files != current.files:
        return "pipeline, environment or schema files were changed"
    return ""


def refuse_unplanned_schemas(plan: Plan, lock: Lock) -> None:
    """Raise RefusedError unless the registry has exactly the plan's schema versions, existing and new."""
    subjects = {change.name for change in plan.changes_of("registry") if change.kind == "schema"}
    for aggregate, versions in lock.schemas.items():
        new_versions = [entry for entry in versions[:1] if entry.subject in subjects]
        expected = [*new_versions, *plan.schemas.get(aggregate, [])][:RETAINED_VERSIONS]
        if versions != expected:
            actual, planned = _versions(versions), _versions(expected)
            _refuse_connector(f"{aggregate} has versions {actual} in the registry, but the plan has {planned}")


def refuse_unplanned_config(deployment: Deployment, plan: Plan, lock: Lock) -> None:
    """Raise RefusedError if the rendered config without schemas differs from the plan, as after a template edit."""
    config = deployment.render_without_schemas(lock)
    keys = sorted(key for key in plan.config.keys() | config.keys() if plan.config.get(key) != config.get(key))
    if keys:
        _refuse_connector(f"the connector's config would differ from the plan in {', '.join(keys)}")


def refuse_unplanned_changes(plan: Plan, changes: list[Change]) -> None:
    """Raise RefusedError if the pending changes of the connector differ from the planned ones.

    If schemas are new, only objects and actions are compared, because the plan does not contain the new schema ids.
    """
    planned = plan.changes_of("connect")
    matches = planned == changes
    if any(change.kind == "schema" for change in plan.changes_of("registry")):
        matches = [(c.object, c.action) for c in planned] == [(c.object, c.action) for c in changes]
    if not matches:
        _refuse_connector(
            f"pending changes of the connector are {_describe(changes)}, but the plan has {_describe(planned)}"
        )


def _effect(change: Change) -> str:
    return " → ".join(filter(None, (change.before, change.after))) or change.reason


def _describe(changes: list[Change]) -> str:
    return ", ".join(f"{change.title} ({_effect(change)})" for change in changes) or "none"


def _versions(versions: list[LockedSchema]) -> str:
    return ", ".join(f"{entry.version} (id {entry.id})" for entry in versions) or "none"


def _refuse_connector(difference: str) -> None:
    hint = "run `outbox plan` again; the other systems were changed as planned, the connector was not changed"
    raise RefusedError(f"{STATE_CHANGED}: {difference}", hint)
