"""plan and apply in this process, with given plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.cli.samples import CHANGES
from typer.testing import CliRunner

from outbox_events.errors import ConfigurationError
from outbox_kit import deployment
from outbox_kit.cli.app import app
from outbox_kit.deployment import Plan, RollOut
from outbox_kit.results.changes import Change

TWO_SYSTEMS = ["postgres", "kafka"]


def test_plan_with_changes_exits_with_3(planned: Callable[..., list[str]]) -> None:
    planned(CHANGES)
    result = CliRunner().invoke(app, ["plan"])
    assert (result.exit_code, result.stderr) == (3, "")
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["system", "kafka", "connect"]
    assert "old → new" in result.stdout


def test_plan_without_changes(planned: Callable[..., list[str]]) -> None:
    planned([])
    result = CliRunner().invoke(app, ["plan"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("no changes")


@pytest.mark.parametrize("changes", [[], CHANGES])
def test_plan_as_json(planned: Callable[..., list[str]], changes: list[Change]) -> None:
    planned(changes)
    result = CliRunner().invoke(app, ["--output", "json", "plan"])
    printed = json.loads(result.stdout)
    assert [change["object"] for change in printed["changes"]] == [change.object for change in changes]
    assert all(
        change.keys() == {"system", "object", "action", "why", "before", "after", "danger", "loss"}
        for change in printed["changes"]
    )


def test_plan_reports_a_missing_folder_of_the_saved_plan(planned: Callable[..., list[str]], tmp_path: Path) -> None:
    planned(CHANGES)
    path = tmp_path / "nowhere" / "plan.json"
    error = CliRunner().invoke(app, ["plan", "--save", str(path)]).exception
    assert isinstance(error, ConfigurationError)
    assert error.message == f"cannot write {path}: No such file or directory"


def test_apply_does_not_prompt_without_a_terminal(planned: Callable[..., list[str]]) -> None:
    applied = planned(CHANGES)
    result = CliRunner().invoke(app, ["apply"])
    assert (result.exit_code, applied) == (1, [])
    assert isinstance(result.exception, ConfigurationError)
    assert "--yes is required" in result.exception.message
    assert "`outbox apply --yes -p connectors/library.yaml -e production.example`" in result.exception.hint
    assert "library.book" in result.stderr, "the plan is printed"
    assert result.stdout == "", "no change was made"


def test_apply_with_yes(planned: Callable[..., list[str]]) -> None:
    applied = planned(CHANGES)
    result = CliRunner().invoke(app, ["--yes", "apply"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert applied == ["topic library.book", "connector c"]
    assert result.stderr == "2 changes made\n"


def test_apply_without_changes_needs_no_yes(planned: Callable[..., list[str]]) -> None:
    planned([])
    result = CliRunner().invoke(app, ["apply"])
    assert (result.exit_code, result.stderr) == (0, "nothing to change\n")


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [([], {}), (["--recover"], {"recover": True}), (["--only", "kafka", "--only", "postgres"], {"only": TWO_SYSTEMS})],
)
def test_apply_executes_the_plan_that_was_confirmed(
    planned: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    output: str,
    options: list[str],
    expected: dict[str, object],
) -> None:
    planned(CHANGES)
    received: list[tuple[str, object, object]] = []

    def make_plan(_: object, *, recover: bool, only: list[str]) -> Plan:
        received.append(("plan", recover, only))
        return Plan("library", "production", tuple(CHANGES))

    def apply(*_: object, recover: bool, only: list[str], **__: object) -> list[Change]:
        received.append(("apply", recover, only))
        return CHANGES

    monkeypatch.setattr(deployment, "make_plan", make_plan)
    monkeypatch.setattr(deployment, "apply", apply)
    assert CliRunner().invoke(app, ["--output", output, "apply", *options]).exit_code == 1
    assert CliRunner().invoke(app, ["--output", output, "--yes", "apply", *options]).exit_code == 0
    expected_options = (expected.get("recover", False), expected.get("only", []))
    assert received == [("plan", *expected_options), ("apply", *expected_options)]


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_rejects_an_unknown_system_with_exit_code_2(planned: Callable[..., list[str]], command: str) -> None:
    planned(CHANGES)
    result = CliRunner().invoke(app, ["--yes", command, "--only", "kafkas"])
    assert result.exit_code == 2
    assert "unknown system 'kafkas'" in result.stderr


def test_prints_dangers_and_roll_out_order(planned: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    planned([])
    dangerous = replace(CHANGES[0], danger="keys move", loss="rows are missing")
    roll_out = RollOut("book", ("isbn",), (), ("outbox apply", "deploy the service that writes isbn"))
    plan = Plan("library", "production", (dangerous,), (roll_out,), waits_for=("slot s",))
    monkeypatch.setattr(deployment, "make_plan", lambda *_, **__: plan)
    result = CliRunner().invoke(app, ["plan"])
    assert result.exit_code == 3
    assert "create !" in result.stdout
    assert result.stderr.splitlines() == [
        "DANGER  topic library.book: keys move",
        '        requires --allow "topic library.book"',
        "LOSS    topic library.book: rows are missing",
        "the connector requires changes that --only excludes: slot s",
        "change the schema of aggregate type book in this order:",
        "  1. outbox apply",
        "  2. deploy the service that writes isbn",
    ]


def test_passes_allow_and_wait_to_apply(planned: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    planned(CHANGES)
    received: dict[str, object] = {}

    def apply(*_: object, **options: object) -> list[Change]:
        received.update(options)
        return []

    monkeypatch.setattr(deployment, "apply", apply)
    options = ["--allow", "topic a", "--allow", "schema b", "--wait", "5"]
    assert CliRunner().invoke(app, ["--yes", "apply", *options]).exit_code == 0
    assert (received["allow"], received["wait_seconds"], received["shown_plan"]) == (["topic a", "schema b"], 5, None)


def test_apply_receives_the_saved_plan(
    planned: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planned(CHANGES)
    saved = tmp_path / "plan.json"
    printed = CliRunner().invoke(app, ["--output", "json", "plan", "--save", str(saved)])
    assert json.loads(printed.stdout) == json.loads(saved.read_text())
    received: dict[str, object] = {}

    def apply(*_: object, **options: object) -> list[Change]:
        received.update(options)
        return CHANGES

    monkeypatch.setattr(deployment, "apply", apply)
    assert CliRunner().invoke(app, ["--yes", "apply", "--plan", str(saved)]).exit_code == 0
    assert received["shown_plan"] == Plan("library", "production", tuple(CHANGES))
    refused = CliRunner().invoke(app, ["--yes", "apply", "--plan", str(saved), "--recover"])
    assert isinstance(refused.exception, ConfigurationError)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("{}", "format: Field required"),
        ('{"format": 2}', "format: Input should be 1"),
        ("nonsense", "Invalid JSON"),
    ],
)
def test_rejects_an_invalid_plan_file(
    planned: Callable[..., list[str]], tmp_path: Path, content: str | None, message: str
) -> None:
    applied = planned(CHANGES)
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    refused = CliRunner().invoke(app, ["--yes", "apply", "--plan", str(path)])
    assert isinstance(refused.exception, ConfigurationError)
    assert message in str(refused.exception)
    assert applied == []


def test_apply_as_json_prints_one_document(planned: Callable[..., list[str]]) -> None:
    planned(CHANGES)
    result = CliRunner().invoke(app, ["--output", "json", "--yes", "apply"])
    assert len(json.loads(result.stdout)["changes"]) == 2


def test_apply_as_json_prints_no_table_when_rejected(planned: Callable[..., list[str]]) -> None:
    """stdout is valid JSON even if the command fails."""
    planned(CHANGES)
    result = CliRunner().invoke(app, ["--output", "json", "apply"])
    assert result.exit_code == 1
    assert result.stdout == "" or json.loads(result.stdout)


def test_reports_expected_errors_in_one_handler(
    planned: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned([])

    def fails(*_: object, **__: object) -> list[Change]:
        raise ConfigurationError("message", "hint")

    monkeypatch.setattr(deployment, "make_plan", fails)
    assert isinstance(CliRunner().invoke(app, ["plan"]).exception, ConfigurationError)
