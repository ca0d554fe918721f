"""What `outbox verify` checks in the schema registry."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_kit.pipeline import Lock
from outbox_kit.registry.state import ActualSubject, Subject, is_registered
from outbox_kit.rules import Finding, Rule, rule


@dataclass(frozen=True)
class Look:
    """Everything that the checks of the registry look at."""

    subjects: list[Subject]
    actual: dict[str, ActualSubject]
    lock: Lock | None


RULES: list[Rule[Look]] = []


@rule(
    RULES,
    "registry.reachable",
    guards="the schema registry answers",
    remedy="check registry.url in the environment file",
)
def _reachable(look: Look) -> Finding:
    return Finding(True, f"{len(look.actual)} subjects asked for", "an answer")


@rule(
    RULES,
    "registry.schemas",
    guards="the newest version of every subject is the file's schema",
    remedy="run `outbox apply`; where it says that a registry does not go back, take the newest version's schema",
)
def _registered(look: Look) -> Finding:
    wrong = [subject.name for subject in look.subjects if not is_registered(subject, look.actual[subject.name])]
    expected = f"the newest version of all {len(look.subjects)} subjects is the file's schema"
    seen = f"not the file's schema: {', '.join(wrong)}" if wrong else f"all {len(look.subjects)}"
    return Finding(not wrong, seen, expected)


@rule(
    RULES,
    "registry.ids",
    guards="the newest version of every subject has an id that the lock file knows",
    remedy="run `outbox apply`; if the registry lost its content, restore it: old records carry old ids",
)
def _ids(look: Look) -> Finding:
    wrong = []
    for subject in look.subjects:
        latest = look.actual[subject.name].latest
        locked = look.lock.schemas.get(subject.aggregate_type, []) if look.lock else []
        if latest is not None and latest.id not in [entry.id for entry in locked]:
            wrong.append(f"{subject.name} has id {latest.id}, the lock file {[entry.id for entry in locked]}")
    return Finding(not wrong, "; ".join(wrong) or "as locked", "as locked")


@rule(
    RULES,
    "registry.compatibility",
    guards="every subject has the rule that keeps old records readable",
    remedy="run `outbox apply`",
)
def _compatibility(look: Look) -> Finding:
    wrong = [
        f"{subject.name} is {look.actual[subject.name].compatibility}, not {subject.compatibility}"
        for subject in look.subjects
        if look.actual[subject.name].compatibility != subject.compatibility
    ]
    return Finding(not wrong, "; ".join(wrong) or "as declared", "as declared")
