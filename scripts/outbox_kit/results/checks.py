"""Evaluate the rules of `outbox lint` and `outbox verify`, and turn each finding of a rule into a check for reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Status(StrEnum):
    """Outcome of a check. UNKNOWN means that the condition could not be evaluated."""

    PASS = "pass"  # noqa: S105 - not a password
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """Severity of a rule. ERROR means that a violation can lose rows or stop the pipeline."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Check:
    """Outcome of a rule, for reports. The meaning of an `id` never changes, because alerts refer to ids."""

    id: str
    status: Status
    seen: str
    expected: str
    remedy: str = ""
    severity: Severity = Severity.ERROR


@dataclass(frozen=True)
class Finding:
    """One result of evaluating a rule. `passed` is None if the rule could not be evaluated.

    If `remedy` or `severity` is set, it overrides the rule's value.
    """

    passed: bool | None
    actual: str
    expected: str
    remedy: str = ""
    severity: Severity | None = None


@dataclass(frozen=True)
class Rule(Generic[T]):
    """Rule for data of type T. `condition` is what the rule checks. `reason` is the failure that the rule prevents."""

    id: str
    condition: str
    severity: Severity
    evaluate: Callable[[T], Iterable[Finding]]
    remedy: str = ""
    reason: str = ""

    def checks(self, data: T) -> list[Check]:
        """Evaluate the rule on `data`, and return one check per finding."""
        return [self.check(finding) for finding in self.evaluate(data)]

    def check(self, finding: Finding) -> Check:
        """Return the check for a finding. If the finding did not pass, its severity determines FAIL or WARN."""
        severity = finding.severity or self.severity
        if finding.passed:
            return Check(self.id, Status.PASS, finding.actual, finding.expected, severity=severity)
        status = Status.FAIL if severity is Severity.ERROR else Status.WARN
        status = Status.UNKNOWN if finding.passed is None else status
        return Check(self.id, status, finding.actual, finding.expected, finding.remedy or self.remedy, severity)


class Rules(list[Rule[T]]):
    """Rules of one module, in the order in which reports list them."""

    def rule(
        self, identifier: str, *, condition: str, remedy: str, severity: Severity = Severity.ERROR
    ) -> Callable[[Callable[[T], Finding]], Callable[[T], Finding]]:
        """Return a decorator that appends a rule. The decorated function returns the rule's only finding."""

        def add(function: Callable[[T], Finding]) -> Callable[[T], Finding]:
            self.append(Rule(identifier, condition, severity, lambda data: [function(data)], remedy))
            return function

        return add


def evaluate(rules: Iterable[Rule[T]], data: T) -> list[Check]:
    """Evaluate the rules on `data`, and return their checks in the order of the rules."""
    return [check for rule in rules for check in rule.checks(data)]


def skip_rules(rules: Sequence[Rule[T]], reason: str) -> list[Check]:
    """Return one UNKNOWN check per rule. Each check contains the reason why the rules were not evaluated."""
    return [rule.check(Finding(None, reason, rule.condition)) for rule in rules]
