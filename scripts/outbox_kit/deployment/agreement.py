"""After registering: is the connector's config the planned one, but for the ids that were not known then?"""

from __future__ import annotations

from outbox_kit.changes import Change
from outbox_kit.deployment.context import Deployment
from outbox_kit.deployment.plan import without_schemas
from outbox_kit.deployment.plan_model import Plan
from outbox_kit.deployment.refusals import words
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import Lock, LockedSchema
from outbox_kit.pipeline.lock import KEPT_VERSIONS


def refuse_other_schemas(plan: Plan, lock: Lock) -> None:
    """The registry must have what it had, plus the versions of the plan. Raises RefusedError."""
    subjects = {change.object.removeprefix("schema ") for change in plan.of("registry")}
    for aggregate, entries in lock.schemas.items():
        new = [entry for entry in entries[:1] if entry.subject in subjects]
        expected = [*new, *plan.schemas.get(aggregate, [])][:KEPT_VERSIONS]
        if entries != expected:
            _moved(f"{aggregate} has versions {_versions(entries)} in the registry, planned were {_versions(expected)}")


def _versions(entries: list[LockedSchema]) -> str:
    return ", ".join(f"{entry.version} (id {entry.id})" for entry in entries) or "none"


def refuse_other_config(deployment: Deployment, plan: Plan, lock: Lock) -> None:
    """Schemas apart, the config must be the one of the plan: a template may have been edited since.

    Raises RefusedError.
    """
    now = without_schemas(deployment, lock)
    keys = sorted(key for key in plan.config.keys() | now.keys() if plan.config.get(key) != now.get(key))
    if keys:
        _moved(f"the connector's config would differ from the plan in {', '.join(keys)}")


def refuse_other_changes(plan: Plan, changes: list[Change]) -> None:
    """The connector itself must stand where it stood; keys of new schemas were not known then. Raises RefusedError."""
    planned = plan.of("connect")
    if any(change.object.startswith("schema ") for change in plan.of("registry")):
        planned, changes = [_bare(change) for change in planned], [_bare(change) for change in changes]
    if planned != changes:
        _moved(f"of the connector {_listed(changes)} is pending, planned was {_listed(planned)}")


def _bare(change: Change) -> Change:
    return Change(change.system, change.object, change.action, "")


def _listed(changes: list[Change]) -> str:
    return ", ".join(f"{change.action} {change.object} ({words(change)})" for change in changes) or "nothing"


def _moved(what: str) -> None:
    raise RefusedError(
        f"the world moved: {what}",
        "database, topics and schemas are as planned, the connector was not touched: run `outbox plan` again",
    )
