"""Commands in this process: help, list of commands, and verify with given results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from outbox_kit import __version__, verification
from outbox_kit.cli.app import TASKS, app
from outbox_kit.results.checks import Check, Status


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401
    """Yield every command and group with its path."""
    yield path, command
    for name in getattr(command, "commands", ()):
        yield from commands(command.get_command(typer.Context(command), name), (*path, name))


COMMANDS = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) or "outbox" for path, _ in COMMANDS])
def test_every_command_and_option_has_help(path: tuple[str, ...], command: Any) -> None:  # noqa: ANN401
    assert command.help
    result = CliRunner().invoke(app, [*path, "-h"], env={"COLUMNS": "80"})
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Usage:" in result.stdout
    assert [line for line in result.stdout.splitlines() if line.endswith("...") and "Usage" not in line] == []
    undescribed = [entry.name for entry in command.params if not getattr(entry, "help", "")]
    assert undescribed == []


def test_root_help_shows_the_first_sentence_of_each_command() -> None:
    summaries = {name: summary for commands in TASKS.values() for name, summary in commands.items()}
    helps = {path[0]: command.help.split("\n\n")[0].replace("\n", " ") for path, command in COMMANDS if len(path) == 1}
    assert helps == summaries


def test_lists_the_commands() -> None:
    """A change of this list is a change of the interface, so add it to the changelog."""
    assert sorted(" ".join(path) for path, _ in COMMANDS if path) == [
        "adopt",
        "apply",
        "backfill",
        "dead-letter",
        "dead-letter acknowledge",
        "dead-letter drop",
        "dead-letter list",
        "dead-letter replay",
        "dead-letter show",
        "demo",
        "destroy",
        "doctor",
        "init",
        "lint",
        "log-level",
        "offsets",
        "offsets export",
        "offsets reset",
        "offsets show",
        "pause",
        "plan",
        "prune",
        "recover",
        "relay",
        "render",
        "republish",
        "restart",
        "resume",
        "senders",
        "senders list",
        "senders recover",
        "stack",
        "stack down",
        "stack logs",
        "stack status",
        "stack up",
        "status",
        "stop",
        "stuck",
        "verify",
    ]


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"outbox-kit {__version__}\n")


@pytest.mark.parametrize("output", ["xml", ""])
def test_rejects_an_unknown_output_with_exit_code_2(output: str) -> None:
    result = CliRunner().invoke(app, ["--output", output, "plan"])
    assert result.exit_code == 2
    assert result.stdout == ""


SELECTION = "-e production.example"
GOOD = Check("kafka.topics", Status.PASS, "all 5", "all 5")
BAD = Check("connect.running", Status.FAIL, "no connector c", "RUNNING", "run `outbox apply`")
WARNING = Check("a.b", Status.WARN, "1", "2", "remedy")


@pytest.mark.parametrize(
    ("checks", "code", "printed", "summary"),
    [
        ([GOOD], 0, "kafka: 1", "1 passed"),
        ([GOOD, WARNING], 0, "a.b", "1 warned, 1 passed"),
        ([GOOD, BAD], 1, f"run `outbox apply {SELECTION}`", "1 failed, 1 passed"),
    ],
)
def test_verify(
    planned: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    checks: list[Check],
    code: int,
    printed: str,
    summary: str,
) -> None:
    planned([])
    monkeypatch.setattr(verification, "verify", lambda *_, **__: checks)
    text = CliRunner().invoke(app, ["verify"])
    assert (text.exit_code, text.stderr) == (code, f"{summary}\n")
    assert printed in text.stdout
    document = CliRunner().invoke(app, ["--output", "json", "verify"])
    assert (document.exit_code, document.stderr) == (code, "")
    entries = json.loads(document.stdout)["checks"]
    assert [entry["id"] for entry in entries] == [check.id for check in checks]
    assert all(entry.keys() == {"id", "severity", "status", "seen", "expected", "remedy"} for entry in entries)


def test_verify_passes_its_timeout(planned: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    planned([])
    timeouts: list[float | None] = []

    def verify(*_: object, canary_seconds: float | None, **__: object) -> list[Check]:
        timeouts.append(canary_seconds)
        return []

    monkeypatch.setattr(verification, "verify", verify)
    assert CliRunner().invoke(app, ["verify", "--canary-timeout", "7.5"]).exit_code == 0
    assert timeouts == [7.5]
    assert CliRunner().invoke(app, ["verify", "--canary-timeout", "0"]).exit_code == 2
    assert CliRunner().invoke(app, ["verify", "--no-canary"]).exit_code == 0
    assert timeouts == [7.5, None]
