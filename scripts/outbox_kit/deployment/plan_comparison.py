"""Conditions under which apply refuses a plan that was shown or saved: files or live state have changed since."""

from __future__ import annotations

from outbox_kit.deployment.deployment import Deployment
from outbox_kit.deployment.plan_model import Plan
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import Lock, LockedSchema
from outbox_kit.pipeline.lock import RETAINED_VERSIONS
from outbox_kit.results.changes import Change

PLAN_INVALID = "the plan cannot be applied"


def refuse_stale_plan(shown_plan: Plan, current_plan: Plan) -> None:
    """Raise RefusedError with the first difference between the plan that was shown and the current plan."""
    difference = _different_target(shown_plan, current_plan) or _different_changes(shown_plan, current_plan)
    if difference:
        raise RefusedError(f"{PLAN_INVALID}: {difference}", "run `outbox plan` again; this apply changed nothing")


def _different_target(shown_plan: Plan, current_plan: Plan) -> str:
    """Return the first difference in pipeline, environment or systems: these can differ while the changes are equal."""
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
    """Raise RefusedError unless the registry has exactly the plan's schema versions, existing and new."""
    subjects = {change.name for change in plan.changes_of("registry") if change.kind == "schema"}
    for aggregate, versions in lock.schemas.items():
        new_versions = [entry for entry in versions[:1] if entry.subject in subjects]
        expected = [*new_versions, *plan.schemas.get(aggregate, [])][:RETAINED_VERSIONS]
        if versions != expected:
            actual, planned = _versions_text(versions), _versions_text(expected)
            raise _connector_refusal(f"{aggregate} has versions {actual} in the registry, but {planned} in the plan")


def refuse_unplanned_config(deployment: Deployment, plan: Plan, lock: Lock) -> None:
    """Raise RefusedError if the rendered config without schemas differs from the plan, as after an edited template."""
    config = deployment.render_without_schemas(lock)
    keys = sorted(key for key in plan.config.keys() | config.keys() if plan.config.get(key) != config.get(key))
    if keys:
        raise _connector_refusal(f"the connector's config would differ from the plan in {', '.join(keys)}")


def refuse_unplanned_changes(plan: Plan, changes: list[Change]) -> None:
    """Raise RefusedError if the pending changes of the connector differ from the planned ones.

    If schemas are new, only objects and actions are compared, because the plan does not contain the new schema ids.
    """
    planned = plan.changes_of("connect")
    matches = [*map(_effect, planned)] == [*map(_effect, changes)]
    if any(change.kind == "schema" for change in plan.changes_of("registry")):
        matches = [(old.object, old.action) for old in planned] == [(new.object, new.action) for new in changes]
    if not matches:
        raise _connector_refusal(
            f"the connector's pending changes are {_changes_text(changes)}, but the plan has {_changes_text(planned)}"
        )


def _effect(change: Change) -> tuple[str, ...]:
    """Return what a change does. Reasons and dangers are texts, which differ between releases."""
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
