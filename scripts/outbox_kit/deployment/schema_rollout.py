"""The safe order in which a changed schema reaches connector and services; docs/decisions/0006."""

from __future__ import annotations

from outbox_kit.deployment.plan_model import RollOut
from outbox_kit.pipeline.lock import KEPT_VERSIONS
from outbox_kit.registry.state import ActualSubject, Subject, fields_changed, is_registered


def roll_outs(subjects: list[Subject], actual: dict[str, ActualSubject]) -> tuple[RollOut, ...]:
    """One per aggregate whose schema gets another version."""
    found = []
    for subject in subjects:
        latest = actual[subject.name].latest
        if latest is not None and not is_registered(subject, actual[subject.name]):
            added, removed = fields_changed(latest.text, subject.text)
            found.append(RollOut(subject.aggregate_type, tuple(added), tuple(removed), _steps(subject, added, removed)))
    return tuple(found)


def _steps(subject: Subject, added: list[str], removed: list[str]) -> tuple[str, ...]:
    new = f"writes {', '.join(added)}" if added else ""
    gone = f"no longer writes {', '.join(removed)}" if removed else ""
    service = " and ".join(filter(None, (new, gone))) or "writes the new form"
    return (
        f"outbox apply: the connector takes {subject.aggregate_type} in the new form and in the old ones",
        f"deploy the service that {service}; until then its rows are encoded with the version before",
        f"not before it is deployed everywhere: the next change of this schema ({KEPT_VERSIONS} versions are carried)",
    )
