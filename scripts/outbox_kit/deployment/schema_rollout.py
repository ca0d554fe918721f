"""Safe order in which a changed schema reaches connector and services (docs/decisions, apply before the service)."""

from __future__ import annotations

from outbox_kit.deployment.plan_model import RollOut
from outbox_kit.pipeline.lock import RETAINED_VERSIONS
from outbox_kit.registry.state import ActualSubject, Subject, fields_changed, is_registered


def roll_outs(subjects: list[Subject], actual: dict[str, ActualSubject]) -> tuple[RollOut, ...]:
    """Return one roll-out per aggregate whose schema gets a new version."""
    result = []
    for subject in subjects:
        latest = actual[subject.name].latest
        if latest is not None and not is_registered(subject, actual[subject.name]):
            added, removed = fields_changed(latest.text, subject.text)
            steps = _steps(subject.aggregate_type, added, removed)
            result.append(RollOut(subject.aggregate_type, tuple(added), tuple(removed), steps))
    return tuple(result)


def _steps(aggregate: str, added: list[str], removed: list[str]) -> tuple[str, ...]:
    writes = f"writes {', '.join(added)}" if added else ""
    omits = f"no longer writes {', '.join(removed)}" if removed else ""
    service = " and ".join(filter(None, (writes, omits))) or "writes the new version"
    return (
        f"outbox apply: the connector accepts {aggregate} in the new version and in the previous ones",
        f"deploy the service that {service}; until then its rows are encoded with the previous version",
        f"change this schema again only after it is deployed everywhere ({RETAINED_VERSIONS} versions are supported)",
    )
