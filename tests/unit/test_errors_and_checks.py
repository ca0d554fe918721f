"""The exception tree, the result of a check, and that the docstring's drawing is the real tree."""

from __future__ import annotations

import re

import pytest

from outbox_kit import errors
from outbox_kit.changes import Change
from outbox_kit.errors import OutboxKitError
from outbox_kit.progress import silent
from outbox_kit.rules import Check, Severity, Status, check


def test_the_drawing_names_every_error() -> None:
    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__ or ""))
    defined = {
        name
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, OutboxKitError) and thing is not OutboxKitError
    }
    assert drawn == defined


@pytest.mark.parametrize("kind", OutboxKitError.__subclasses__())
def test_errors_carry_message_and_hint(kind: type[OutboxKitError]) -> None:
    error = kind("what happened", "what to do")
    assert (str(error), error.message, error.hint) == ("what happened", "what happened", "what to do")
    assert kind("alone").hint == ""


def test_a_check_that_passes_needs_no_remedy() -> None:
    good = check("a.b", True, seen="1", expected="1", remedy="do this")
    assert good == Check("a.b", Status.PASS, "1", "1", "", Severity.ERROR)


def test_a_check_that_fails_keeps_the_remedy() -> None:
    bad = check("a.b", False, seen="1", expected="2", remedy="do this")
    assert bad == Check("a.b", Status.FAIL, "1", "2", "do this", Severity.ERROR)


def test_status_and_severity_are_text_in_reports() -> None:
    assert [*Status, *Severity] == ["pass", "warn", "fail", "unknown", "error", "warning"]


def test_a_change_is_a_value() -> None:
    assert Change("kafka", "topic a", "create", "why") == Change("kafka", "topic a", "create", "why", "", "")


def test_silent_takes_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    silent("a sentence")
    assert capsys.readouterr() == ("", "")
