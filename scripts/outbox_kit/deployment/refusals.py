"""Why a plan is not carried out: dangerous changes nobody allowed, a world that moved, a connector too early."""

from __future__ import annotations

from collections.abc import Collection

from outbox_kit.changes import Change
from outbox_kit.deployment.plan_model import Plan
from outbox_kit.errors import RefusedError
from outbox_kit.rules import Check, Severity, Status


def refuse_dangerous(plan: Plan, allowed: Collection[str]) -> None:
    """Every dangerous change must be allowed by the name of its object. Raises RefusedError."""
    refused = [change for change in plan.dangerous if change.object not in allowed]
    if refused:
        listed = "; ".join(f"{change.object}: {change.danger}" for change in refused)
        flags = " ".join(f'--allow "{change.object}"' for change in refused)
        raise RefusedError(f"dangerous, so nothing was changed: {listed}", f"if it is meant: outbox apply {flags}")


def refuse_early_connector(plan: Plan) -> None:
    """What the connector depends on comes before it. Raises RefusedError."""
    if plan.waits_for:
        raise RefusedError(
            f"the connector needs what is still pending: {', '.join(plan.waits_for)}",
            "apply without --only, or apply these systems first",
        )


def refuse_moved(shown: Plan, now: Plan) -> None:
    """What is done must be what was shown. Raises RefusedError naming the first difference."""
    moved = _moved(shown, now)
    if moved:
        raise RefusedError(f"the world moved: {moved}", "look at `outbox plan` again; nothing was changed")


def _moved(shown: Plan, now: Plan) -> str:
    elsewhere = _elsewhere(shown, now)
    if elsewhere:
        return elsewhere
    then = {(change.system, change.object, change.action): change for change in shown.changes}
    for change in now.changes:
        old = then.pop((change.system, change.object, change.action), None)
        if old is None:
            return f"{change.action} {change.object} was not in the plan"
        if old != change:
            return f"{change.action} {change.object} was planned as {words(old)}, and is now {words(change)}"
    if then:
        change = next(iter(then.values()))
        return f"{change.action} {change.object} is not pending any more"
    if shown.files != now.files:
        return "pipeline, environment or schema files were changed since the plan"
    return ""


def _elsewhere(shown: Plan, now: Plan) -> str:
    """A plan is of one world, whatever the changes: the same ones may be pending in another."""
    if (shown.pipeline, shown.environment) != (now.pipeline, now.environment):
        return f"the plan is of {shown.pipeline!r} in {shown.environment!r}"
    for what, old_place, place in (
        ("Kafka cluster", shown.cluster_id, now.cluster_id),
        ("registry", shown.registry, now.registry),
        ("database", shown.database, now.database),
    ):
        if old_place is not None and old_place != place:
            return f"the plan was made for {what} {old_place}, this is {place or 'unknown'}"
    return ""


def words(change: Change) -> str:
    """Before and after in one phrase."""
    return " → ".join(filter(None, (change.before, change.after))) or change.why


def refuse_broken_rules(checks: list[Check]) -> None:
    """What lint calls an error stops the plan. Raises RefusedError."""
    broken = [check for check in checks if check.status is Status.FAIL and check.severity is Severity.ERROR]
    if broken:
        listed = "; ".join(f"{check.id}: {check.seen}, expected {check.expected}" for check in broken)
        raise RefusedError(f"the files break rules: {listed}", broken[0].remedy or "see `outbox lint`")
