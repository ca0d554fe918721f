"""Checks of `outbox verify` on the schema registry."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_kit.pipeline import Lock
from outbox_kit.registry.state import ActualSubject, Subject, is_registered
from outbox_kit.rules import Finding, Rules


@dataclass(frozen=True)
class RegistrySnapshot:
    """Input of the checks."""

    subjects: list[Subject]
    actual: dict[str, ActualSubject]
    lock: Lock | None


RULES = Rules[RegistrySnapshot]()


@RULES.rule(
    "registry.reachable", guards="the schema registry responds", remedy="check registry.url in the environment file"
)
def _reachable(snapshot: RegistrySnapshot) -> Finding:
    return Finding(True, f"{len(snapshot.actual)} subjects requested", "a response")


@RULES.rule(
    "registry.schemas",
    guards="the latest version of every subject is the schema of the file",
    remedy="run `outbox apply`; if it reports an older version of the schema, use the latest version",
)
def _registered(snapshot: RegistrySnapshot) -> Finding:
    problems = [
        subject.name for subject in snapshot.subjects if not is_registered(subject, snapshot.actual[subject.name])
    ]
    expected = f"the latest version of all {len(snapshot.subjects)} subjects is the schema of the file"
    actual = f"not the schema of the file: {', '.join(problems)}" if problems else f"all {len(snapshot.subjects)}"
    return Finding(not problems, actual, expected)


@RULES.rule(
    "registry.ids",
    guards="the id of the latest version of every subject is in the lock file",
    remedy="run `outbox apply`; if the registry lost its content, restore it: old records contain old ids",
)
def _ids(snapshot: RegistrySnapshot) -> Finding:
    problems = []
    for subject in snapshot.subjects:
        latest = snapshot.actual[subject.name].latest
        locked = snapshot.lock.schemas.get(subject.aggregate_type, []) if snapshot.lock else []
        if latest is not None and latest.id not in [entry.id for entry in locked]:
            problems.append(f"{subject.name} has id {latest.id}, the lock file {[entry.id for entry in locked]}")
    return Finding(not problems, "; ".join(problems) or "as locked", "as locked")


@RULES.rule(
    "registry.compatibility",
    guards="every subject has the compatibility level of the pipeline file: old records stay readable",
    remedy="run `outbox apply`",
)
def _compatibility(snapshot: RegistrySnapshot) -> Finding:
    problems = [
        f"{subject.name} is {snapshot.actual[subject.name].compatibility}, not {subject.compatibility}"
        for subject in snapshot.subjects
        if snapshot.actual[subject.name].compatibility != subject.compatibility
    ]
    return Finding(not problems, "; ".join(problems) or "as declared", "as declared")
