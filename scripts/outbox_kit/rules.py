"""The result of one check of `outbox verify`: a stable id, what was seen, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

L = TypeVar("L")


class Status(StrEnum):
    """Outcome of a check."""

    PASS = "pass"  # noqa: S105 - not a password
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"  # could not be looked at; neither good nor bad


class Severity(StrEnum):
    """What is at stake: rows (error) or comfort (warning)."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Check:
    """One check as it came out. `id` never changes its meaning; reports and alerts hang on it."""

    id: str
    status: Status
    seen: str
    expected: str
    remedy: str = ""
    severity: Severity = Severity.ERROR


def check(identifier: str, good: bool, *, seen: str, expected: str, remedy: str) -> Check:
    """A check that passes or fails; the remedy is kept for when it fails."""
    if good:
        return Check(identifier, Status.PASS, seen, expected)
    return Check(identifier, Status.FAIL, seen, expected, remedy)


@dataclass(frozen=True)
class Finding:
    """What one look found. `good` is None where it could not be told; `remedy` replaces the rule's own."""

    good: bool | None
    seen: str
    expected: str
    remedy: str = ""


@dataclass(frozen=True)
class Rule(Generic[L]):
    """A check before anybody looked: what it guards, what to do, and how to look at what was read."""

    id: str
    guards: str
    remedy: str
    severity: Severity
    look: Callable[[L], Finding]


def rule(
    rules: list[Rule[L]], identifier: str, *, guards: str, remedy: str, severity: Severity = Severity.ERROR
) -> Callable[[Callable[[L], Finding]], Callable[[L], Finding]]:
    """Put a look at the end of `rules`; the order in which they are written is the order of the report."""

    def add(look: Callable[[L], Finding]) -> Callable[[L], Finding]:
        rules.append(Rule(identifier, guards, remedy, severity, look))
        return look

    return add


def judge(rules: Sequence[Rule[L]], seen: L) -> list[Check]:
    """The outcome of every rule, in their order: what is not good fails, or warns where no row is at stake."""
    return [_outcome(each, each.look(seen)) for each in rules]


def _outcome(each: Rule[L], found: Finding) -> Check:
    if found.good:
        return Check(each.id, Status.PASS, found.seen, found.expected, severity=each.severity)
    status = Status.UNKNOWN if found.good is None else FAILED_AS[each.severity]
    return Check(each.id, status, found.seen, found.expected, found.remedy or each.remedy, each.severity)


def unknown(rules: Sequence[Rule[L]], why: str) -> list[Check]:
    """Every rule as one that nobody could look at."""
    return [Check(each.id, Status.UNKNOWN, why, each.guards, each.remedy, each.severity) for each in rules]


def failed(each: Rule[L], seen: str, expected: str, remedy: str = "") -> Check:
    """One rule as failed before its look."""
    return _outcome(each, Finding(False, seen, expected, remedy))


FAILED_AS = {Severity.ERROR: Status.FAIL, Severity.WARNING: Status.WARN}
