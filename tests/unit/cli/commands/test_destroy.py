"""`destroy`: the confirmation by name. tests/unit/deployment/test_teardown.py tests the deletion."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.fake_kafka import FakeKafka
from typer.testing import CliRunner

from outbox_events.errors import ConfigurationError
from outbox_kit import deployment
from outbox_kit.cli.app import app
from outbox_kit.deployment import Deployment, Removal
from outbox_kit.results.changes import Change

REMOVAL = Removal((Change("kafka", "topic", "library.book", "delete", "states", danger="records are lost"),), ())
Calls = list[Removal | None]


@pytest.fixture
def destroyed(planned: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Return the removals that the command has confirmed, one per call."""
    planned([])
    calls: Calls = []

    def destroy(*_: object, shown_removal: Removal | None, **__: object) -> Removal:
        calls.append(shown_removal)
        return REMOVAL

    monkeypatch.setattr(deployment, "plan_destroy", lambda *_: REMOVAL)
    monkeypatch.setattr(deployment, "destroy", destroy)
    monkeypatch.setattr(Deployment, "kafka", FakeKafka({}))
    return calls


@pytest.mark.parametrize(
    ("options", "code", "calls"),
    [
        ("--confirm library@production", 0, [None]),
        ("--confirm library", 1, []),
        ("--confirm library@dev", 1, []),
        ("--confirm production", 1, []),
        ("--yes", 2, []),
        ("", 1, []),
    ],
)
def test_requires_the_name_of_the_pipeline(destroyed: Calls, options: str, code: int, calls: Calls) -> None:
    assert CliRunner().invoke(app, ["destroy", *options.split()]).exit_code == code
    assert destroyed == calls


def test_yes_before_the_command_confirms_nothing(destroyed: Calls) -> None:
    result = CliRunner().invoke(app, ["--yes", "destroy"])
    assert isinstance(result.exception, ConfigurationError)
    assert "--confirm library@production" in result.exception.hint
    assert "DANGER  topic library.book: records are lost" in result.stderr
    assert destroyed == []


@pytest.mark.parametrize(
    ("answer", "code", "calls"), [("library@production", 0, [REMOVAL]), ("y", 1, []), ("library", 1, [])]
)
def test_asks_for_the_name_at_a_terminal(
    destroyed: Calls, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, calls: Calls
) -> None:
    monkeypatch.setattr("outbox_kit.cli.confirmation._require_terminal", lambda *_: None)
    result = CliRunner().invoke(app, ["destroy"], input=f"{answer}\n")
    assert (result.exit_code, destroyed) == (code, calls)
    assert "Delete 1 object in environment production (database library at db.example.internal:" in result.stderr
