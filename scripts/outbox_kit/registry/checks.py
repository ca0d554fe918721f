"""What `outbox verify` checks in the schema registry."""

from __future__ import annotations

from outbox_kit.checking import Check, check
from outbox_kit.pipeline import Lock
from outbox_kit.registry.state import ActualSubject, Subject, is_registered


def run(subjects: list[Subject], actual: dict[str, ActualSubject], lock: Lock | None) -> list[Check]:
    """The newest version is the file's schema, under the id that the connector writes."""
    return [_registered(subjects, actual), _ids(subjects, actual, lock), _compatibility(subjects, actual)]


def _registered(subjects: list[Subject], actual: dict[str, ActualSubject]) -> Check:
    wrong = [subject.name for subject in subjects if not is_registered(subject, actual[subject.name])]
    return check(
        "registry.schemas",
        not wrong,
        seen=f"not the file's schema: {', '.join(wrong)}" if wrong else f"all {len(subjects)}",
        expected=f"the newest version of all {len(subjects)} subjects is the file's schema",
        remedy="run `outbox apply`",
    )


def _ids(subjects: list[Subject], actual: dict[str, ActualSubject], lock: Lock | None) -> Check:
    wrong = []
    for subject in subjects:
        latest = actual[subject.name].latest
        locked = lock.schemas.get(subject.aggregate_type, []) if lock else []
        if latest is not None and latest.id not in [entry.id for entry in locked]:
            wrong.append(f"{subject.name} has id {latest.id}, the lock file {[entry.id for entry in locked]}")
    return check(
        "registry.ids",
        not wrong,
        seen="; ".join(wrong) or "as locked",
        expected="the ids that the connector writes into records",
        remedy="run `outbox apply`; if the registry lost its content, restore it: old records carry old ids",
    )


def _compatibility(subjects: list[Subject], actual: dict[str, ActualSubject]) -> Check:
    wrong = [
        f"{subject.name} is {actual[subject.name].compatibility}, not {subject.compatibility}"
        for subject in subjects
        if actual[subject.name].compatibility != subject.compatibility
    ]
    return check(
        "registry.compatibility",
        not wrong,
        seen="; ".join(wrong) or "as declared",
        expected="as declared",
        remedy="run `outbox apply`",
    )
