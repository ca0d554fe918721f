"""The tree of errors, which the docstring must show, and the results of checks."""

from __future__ import annotations

import re

import pytest

from outbox_events import errors
from outbox_events.errors import OutboxError
from outbox_kit.results import silent
from outbox_kit.results.changes import Change
from outbox_kit.results.checks import Check, Finding, Rules, Severity, Status, evaluate, skip_rules


def test_exception_tree_lists_every_error() -> None:
    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__ or ""))
    defined = {
        name
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, OutboxError) and thing is not OutboxError
    }
    assert drawn == defined


@pytest.mark.parametrize("kind", OutboxError.__subclasses__())
def test_errors_have_message_and_hint(kind: type[OutboxError]) -> None:
    error = kind("what happened", "what to do")
    assert (str(error), error.message, error.hint) == ("what happened", "what happened", "what to do")
    assert kind("alone").hint == ""


def checks_of(finding: Finding, severity: Severity = Severity.ERROR) -> list[Check]:
    rules = Rules[None]()
    rules.rule("a.b", condition="it holds", remedy="do this", severity=severity)(lambda _: finding)
    return evaluate(rules, None)


@pytest.mark.parametrize(
    ("finding", "severity", "expected"),
    [
        (Finding(True, "1", "1"), Severity.ERROR, Check("a.b", Status.PASS, "1", "1")),
        (Finding(False, "1", "2"), Severity.ERROR, Check("a.b", Status.FAIL, "1", "2", "do this")),
        (Finding(False, "1", "2", "do that"), Severity.ERROR, Check("a.b", Status.FAIL, "1", "2", "do that")),
        (Finding(None, "1", "2"), Severity.ERROR, Check("a.b", Status.UNKNOWN, "1", "2", "do this")),
        (
            Finding(False, "1", "2"),
            Severity.WARNING,
            Check("a.b", Status.WARN, "1", "2", "do this", Severity.WARNING),
        ),
        (
            Finding(False, "1", "2", severity=Severity.WARNING),
            Severity.ERROR,
            Check("a.b", Status.WARN, "1", "2", "do this", Severity.WARNING),
        ),
    ],
)
def test_the_check_of_a_finding(finding: Finding, severity: Severity, expected: Check) -> None:
    assert checks_of(finding, severity) == [expected]


def test_rules_that_cannot_be_evaluated() -> None:
    rules = Rules[None]()
    rules.rule("a.b", condition="it holds", remedy="do this")(lambda _: Finding(True, "1", "1"))
    assert skip_rules(rules, "down") == [Check("a.b", Status.UNKNOWN, "down", "it holds", "do this")]


def test_status_and_severity_are_text_in_reports() -> None:
    assert [*Status, *Severity] == ["pass", "warn", "fail", "unknown", "error", "warning"]


def test_changes_compare_by_value() -> None:
    assert Change("kafka", "topic", "a", "create", "why") == Change("kafka", "topic", "a", "create", "why", "", "")


def test_silent_accepts_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    silent("a sentence")
    assert capsys.readouterr() == ("", "")
