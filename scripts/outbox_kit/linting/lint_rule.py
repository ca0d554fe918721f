"""Declaration of lint rules: decorators, and the findings that rules yield."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from outbox_kit.linting.lint_input import LintInput
from outbox_kit.rules import Finding, Rule, Severity

PREFIX = "lint."
UNSET = "(not set)"
LintRule = Rule[Sequence[LintInput]]
InputViolations = Callable[[LintInput], Iterator[Finding]]
CrossInputViolations = Callable[[Sequence[LintInput]], Iterator[Finding]]


def violation(actual: str, expected: str, remedy: str, severity: Severity | None = None) -> Finding:
    """Return the finding for one violation of a rule. `severity` replaces the severity of the rule."""
    return Finding(False, actual, expected, remedy, severity)


def mismatch(key: str, actual: str | None, expected: str | None) -> Finding:
    """Return the finding for a setting whose value is not `expected` (None: the setting must not be set)."""
    remedy = f"set {key} to {expected}" if expected else f"leave {key} out"
    return violation(f"{key}={actual or UNSET}", expected or UNSET, remedy)


def suggestion(name: str, candidates: Iterable[str], prefix: str = "") -> str:
    """Return the remedy for an unknown name: the most similar candidate."""
    matches = difflib.get_close_matches(name, sorted(candidates), n=1)
    return f"did you mean {prefix}{matches[0]}?" if matches else "correct the name, or remove it"


class LintRules(list[LintRule]):
    """Rules of one module, in the order of the report."""

    def cross_input_rule(
        self, name: str, condition: str, *, reason: str, severity: Severity = Severity.ERROR
    ) -> Callable[[CrossInputViolations], CrossInputViolations]:
        """Append a rule that compares all inputs. The rule passes if the function yields no violation."""

        def add(violations: CrossInputViolations) -> CrossInputViolations:
            def evaluate(inputs: Sequence[LintInput]) -> list[Finding]:
                return list(violations(inputs)) or [Finding(True, "holds", condition)]

            self.append(Rule(PREFIX + name, condition, severity, evaluate, reason=reason))
            return violations

        return add

    def rule(
        self, name: str, condition: str, *, reason: str, severity: Severity = Severity.ERROR
    ) -> Callable[[InputViolations], InputViolations]:
        """Append a rule that checks each input separately. With several inputs a finding begins with the file name."""

        def add(violations: InputViolations) -> InputViolations:
            def labelled(inputs: Sequence[LintInput]) -> Iterator[Finding]:
                for lint_input in inputs:
                    label = f"{lint_input.label}: " if len(inputs) > 1 else ""
                    for finding in violations(lint_input):
                        yield replace(finding, actual=label + finding.actual)

            self.cross_input_rule(name, condition, reason=reason, severity=severity)(labelled)
            return violations

        return add
