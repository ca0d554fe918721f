"""What a rule of `outbox lint` is, and how it is written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from outbox_kit.linting.lint_input import Target
from outbox_kit.rules import Check, Severity, Status

PREFIX = "lint."


@dataclass(frozen=True)
class Finding:
    """One place where a rule is broken. `severity` is for a place that is less grave than the rule."""

    seen: str
    expected: str
    remedy: str
    severity: Severity | None = None


Look = Callable[[Target], Iterator[Finding]]
LookAcross = Callable[[Sequence[Target]], Iterator[Finding]]


@dataclass(frozen=True)
class Rule:
    """One rule. `id` never changes its meaning; `demands` completes the sentence "the rule is that ..."."""

    id: str
    demands: str
    why: str
    severity: Severity
    look: LookAcross

    def checks(self, targets: Sequence[Target]) -> list[Check]:
        """A check for each finding; one that passed where there is none."""
        found = [self._check(finding) for finding in self.look(targets)]
        return found or [Check(self.id, Status.PASS, "holds", self.demands, severity=self.severity)]

    def _check(self, finding: Finding) -> Check:
        severity = finding.severity or self.severity
        status = Status.FAIL if severity is Severity.ERROR else Status.WARN
        return Check(self.id, status, finding.seen, finding.expected, finding.remedy, severity)


def rule(name: str, demands: str, *, why: str, severity: Severity = Severity.ERROR) -> Callable[[Look], Rule]:
    """A rule that looks at one pipeline in one environment at a time."""

    def made(look: Look) -> Rule:
        return Rule(PREFIX + name, demands, why, severity, lambda targets: _each(look, targets))

    return made


def rule_across(
    name: str, demands: str, *, why: str, severity: Severity = Severity.ERROR
) -> Callable[[LookAcross], Rule]:
    """A rule that looks at all pipelines together."""

    def made(look: LookAcross) -> Rule:
        return Rule(PREFIX + name, demands, why, severity, look)

    return made


def _each(look: Look, targets: Sequence[Target]) -> Iterator[Finding]:
    """Findings of each target; with several it is said whose they are."""
    for target in targets:
        whose = f"{target.label}: " if len(targets) > 1 else ""
        for finding in look(target):
            yield Finding(whose + finding.seen, finding.expected, finding.remedy, finding.severity)
