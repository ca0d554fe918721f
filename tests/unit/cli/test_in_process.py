"""Commands in this process: what they do with what they get."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.unit.cli.samples import SECRETS
from typer.testing import CliRunner

from outbox_kit import __version__, deployment, verification
from outbox_kit.changes import Change
from outbox_kit.checking import Check, Status
from outbox_kit.cli.app import app
from outbox_kit.errors import ConfigurationError

# --- in this process: what commands do with what they get


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401
    """Every command by its path, groups among them."""
    yield path, command
    for name, entry in getattr(command, "commands", {}).items():
        yield from commands(entry, (*path, name))


COMMANDS = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) or "outbox" for path, _ in COMMANDS])
def test_every_command_and_option_has_help(path: tuple[str, ...], command: Any) -> None:  # noqa: ANN401
    assert command.help
    result = CliRunner().invoke(app, [*path, "--help"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Usage:" in result.stdout
    undescribed = [entry.name for entry in command.params if not getattr(entry, "help", "")]
    assert undescribed == []


def test_the_commands() -> None:
    """A change of this list is a change of what users type: write it into the changelog."""
    assert sorted(" ".join(path) for path, _ in COMMANDS if path) == sorted(
        [
            "apply",
            "demo",
            "plan",
            "render",
            "stack",
            "stack down",
            "stack logs",
            "stack status",
            "stack up",
            "verify",
        ]
    )


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"outbox-kit {__version__}\n")


@pytest.mark.parametrize("output", ["xml", ""])
def test_an_unknown_output_is_usage(output: str) -> None:
    result = CliRunner().invoke(app, ["--output", output, "plan"])
    assert result.exit_code == 2
    assert result.stdout == ""


CHANGES = [
    Change("kafka", "topic library.book", "create", "newest state of every book", "", "4 partitions, compact"),
    Change("connect", "connector c", "update", "restarts the task", "old", "new"),
]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> Callable[..., list[str]]:
    """A deployment whose plan is known; returns the list of what was really applied."""

    def known(changes: list[Change]) -> list[str]:
        applied: list[str] = []

        def apply(*_: object, **__: object) -> list[Change]:
            applied.extend(change.object for change in changes)
            return changes

        monkeypatch.setattr(deployment, "make_plan", lambda *_, **__: changes)
        monkeypatch.setattr(deployment, "apply", apply)
        for name, value in SECRETS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(workspace)
        monkeypatch.setenv("OUTBOX_ENVIRONMENT", "production.example")
        return applied

    return known


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
    assert result.stderr == "no changes: everything is as the files say\n"


@pytest.mark.parametrize("changes", [[], CHANGES])
def test_plan_as_json(planned: Callable[..., list[str]], changes: list[Change]) -> None:
    planned(changes)
    result = CliRunner().invoke(app, ["--output", "json", "plan"])
    printed = json.loads(result.stdout)
    assert [change["object"] for change in printed["changes"]] == [change.object for change in changes]
    assert all(
        change.keys() == {"system", "object", "action", "why", "before", "after"} for change in printed["changes"]
    )


def test_apply_never_asks_without_a_terminal(planned: Callable[..., list[str]]) -> None:
    applied = planned(CHANGES)
    result = CliRunner().invoke(app, ["apply"])
    assert (result.exit_code, applied) == (1, [])
    assert "error: not a terminal, and --yes was not given" in result.stderr
    assert "`outbox apply --yes`" in result.stderr
    assert "library.book" in result.stderr, "what it would do"
    assert result.stdout == "", "data of what was done, and nothing was"


def test_apply_with_yes(planned: Callable[..., list[str]]) -> None:
    applied = planned(CHANGES)
    result = CliRunner().invoke(app, ["--yes", "apply"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert applied == ["topic library.book", "connector c"]
    assert result.stderr == "2 changes made\n"


def test_apply_of_nothing_needs_no_yes(planned: Callable[..., list[str]]) -> None:
    planned([])
    result = CliRunner().invoke(app, ["apply"])
    assert (result.exit_code, result.stderr) == (0, "nothing to change\n")


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(("options", "recover"), [([], False), (["--recover"], True)])
def test_recover_reaches_plan_and_apply(
    planned: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    output: str,
    options: list[str],
    recover: bool,
) -> None:
    """What is shown before the question must be what is done after it."""
    planned(CHANGES)
    heard: list[tuple[str, bool]] = []

    def make_plan(_: object, *, recover: bool) -> list[Change]:
        heard.append(("plan", recover))
        return CHANGES

    def apply(*_: object, recover: bool) -> list[Change]:
        heard.append(("apply", recover))
        return CHANGES

    monkeypatch.setattr(deployment, "make_plan", make_plan)
    monkeypatch.setattr(deployment, "apply", apply)
    assert CliRunner().invoke(app, ["--output", output, "apply", *options]).exit_code == 1
    assert CliRunner().invoke(app, ["--output", output, "--yes", "apply", *options]).exit_code == 0
    assert heard == [("plan", recover), ("apply", recover)]


def test_plan_does_not_recover(planned: Callable[..., list[str]]) -> None:
    planned(CHANGES)
    assert CliRunner().invoke(app, ["plan", "--recover"]).exit_code == 2


def test_apply_as_json_prints_one_document(planned: Callable[..., list[str]]) -> None:
    planned(CHANGES)
    result = CliRunner().invoke(app, ["--output", "json", "--yes", "apply"])
    assert len(json.loads(result.stdout)["changes"]) == 2


def test_apply_as_json_that_is_refused_prints_no_table(planned: Callable[..., list[str]]) -> None:
    """Who asked for JSON reads stdout with a parser, also when the answer is no."""
    planned(CHANGES)
    result = CliRunner().invoke(app, ["--output", "json", "apply"])
    assert result.exit_code == 1
    assert result.stdout == "" or json.loads(result.stdout)


GOOD = Check("kafka.topics", Status.PASS, "all 5", "all 5")
BAD = Check("connect.running", Status.FAIL, "no connector c", "RUNNING", "run `outbox apply`")
WARNING = Check("a.b", Status.WARN, "1", "2", "look")


@pytest.mark.parametrize(
    ("checks", "code", "words"),
    [
        ([GOOD], 0, ""),
        ([GOOD, WARNING], 0, "a.b: expected 2; look\n"),
        ([GOOD, BAD], 1, "connect.running: expected RUNNING; run `outbox apply`\n"),
    ],
)
def test_verify(
    planned: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    checks: list[Check],
    code: int,
    words: str,
) -> None:
    planned([])
    monkeypatch.setattr(verification, "verify", lambda *_, **__: checks)
    table = CliRunner().invoke(app, ["verify"])
    assert (table.exit_code, table.stderr) == (code, words)
    assert [line.split()[0] for line in table.stdout.splitlines()] == [
        "check",
        *(check.id for check in checks),
    ]
    document = CliRunner().invoke(app, ["--output", "json", "verify"])
    assert (document.exit_code, document.stderr) == (code, "")
    printed = json.loads(document.stdout)["checks"]
    assert [check["id"] for check in printed] == [check.id for check in checks]
    assert all(check.keys() == {"id", "severity", "status", "seen", "expected", "remedy"} for check in printed)


def test_verify_hands_on_its_bound(planned: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    planned([])
    bounds: list[float] = []

    def verify(*_: object, canary_seconds: float) -> list[Check]:
        bounds.append(canary_seconds)
        return []

    monkeypatch.setattr(verification, "verify", verify)
    assert CliRunner().invoke(app, ["verify", "--canary-timeout", "7.5"]).exit_code == 0
    assert bounds == [7.5]
    assert CliRunner().invoke(app, ["verify", "--canary-timeout", "0"]).exit_code == 2


def test_expected_errors_reach_the_one_handler(
    planned: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned([])

    def fails(_: object) -> list[Change]:
        raise ConfigurationError("what", "how")

    monkeypatch.setattr(deployment, "make_plan", fails)
    assert isinstance(CliRunner().invoke(app, ["plan"]).exception, ConfigurationError)
