"""Declaration of lint rules: decorators, and the findings that rules yield."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from outbox_kit.linting.lint_input import LintInput
from outbox_kit.results.checks import Finding, Rule, Severity

ID_PREFIX = "lint."
UNSET = "(not set)"
LintRule = Rule[Sequence[LintInput]]
InputCheck = Callable[[LintInput], Iterator[Finding]]
CrossInputCheck = Callable[[Sequence[LintInput]], Iterator[Finding]]


def violation(actual: str, expected: str, remedy: str, severity: Severity | None = None) -> Finding:
    """Return the finding for one violation of a rule. `severity` replaces the severity of the rule."""
    return Finding(False, actual, expected, remedy, severity)


def mismatch(key: str, actual: str | None, expected: str | None) -> Finding:
    """Return the violation of a transform's setting. If `expected` is None or empty, the setting must not be set."""
    remedy = f"set {key} to {expected} in the template" if expected else f"remove {key} from the template"
    return violation(f"{key}={actual or UNSET}", expected or UNSET, remedy)


def suggestion(name: str, candidates: Iterable[str], prefix: str = "") -> str:
    """Return the remedy for an unknown name, with the most similar candidate if there is one."""
    matches = difflib.get_close_matches(name, sorted(candidates), n=1)
    return f"did you mean {prefix}{matches[0]}?" if matches else "correct the name, or remove it"


class LintRules(list[LintRule]):
    """Rules of one module, in the order of the report."""

    def cross_input_rule(
        self, name: str, condition: str, *, reason: str, severity: Severity = Severity.ERROR
    ) -> Callable[[CrossInputCheck], CrossInputCheck]:
        """Return a decorator that appends a rule over all inputs, which passes if the function yields no violation."""

        def append_rule(check: CrossInputCheck) -> CrossInputCheck:
            def evaluate(inputs: Sequence[LintInput]) -> list[Finding]:
                return list(check(inputs)) or [Finding(True, "holds", condition)]

            self.append(Rule(ID_PREFIX + name, condition, severity, evaluate, reason=reason))
            return check

        return append_rule

    def rule(
        self, name: str, condition: str, *, reason: str, severity: Severity = Severity.ERROR
    ) -> Callable[[InputCheck], InputCheck]:
        """Return a decorator for a function that checks one input. With several inputs, findings begin with `label`."""

        def append_rule(check: InputCheck) -> InputCheck:
            def check_all(inputs: Sequence[LintInput]) -> Iterator[Finding]:
                for lint_input in inputs:
                    label = f"{lint_input.label}: " if len(inputs) > 1 else ""
                    for finding in check(lint_input):
                        yield replace(finding, actual=label + finding.actual)

            self.cross_input_rule(name, condition, reason=reason, severity=severity)(check_all)
            return check

        return append_rule
