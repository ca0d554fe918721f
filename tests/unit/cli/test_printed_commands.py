"""Every `outbox` command in messages, hints and remedies exists and has the options that are printed."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.conftest import REPOSITORY
from tests.remedies import commands_of
from typer.testing import CliRunner

from outbox_events.errors import OutboxError
from outbox_kit.cli.app import app
from outbox_kit.cli.console import commands_completed, completed, print_message, stderr
from outbox_kit.cli.options import CommonOptions, common_options

PACKAGE = REPOSITORY / "scripts" / "outbox_kit"
# Texts that name a command without its required arguments, or with arguments that are known only at run time.
NAMES_ONLY = {
    "outbox \0",
    "outbox adopt",
    "outbox apply --plan",
    "outbox offsets export",
    "outbox republish",
}
# A value that is known only at run time. After a word, it is a sequence of options, which can be empty.
VALUE = "\0"


def texts(path: Path) -> Iterator[str]:
    """Yield the strings of a module except docstrings. VALUE replaces each expression of an f-string."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | docstrings:
            yield node.value


def printed_commands() -> set[str]:
    """Return the commands between backquotes, with the options that `verify` adds to the commands of remedies."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for text in texts(path):
            found |= {command for command in commands_of(text) if command.startswith("outbox ")}
    return found


COMMANDS = sorted(printed_commands() - NAMES_ONLY)


def parse(command: Any, arguments: list[str], parent: typer.Context | None = None) -> None:  # noqa: ANN401 - private type
    """Parse the arguments as the command line does. Raises the errors of the command line."""
    context = command.make_context(command.name or "outbox", list(arguments), parent=parent)
    if hasattr(command, "commands"):
        _, subcommand, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        parse(subcommand, rest, context)


def test_finds_the_commands_of_remedies() -> None:
    assert printed_commands() >= NAMES_ONLY
    assert {"outbox restart", "outbox stuck --resend", f"outbox apply --only kafka{VALUE}"} <= set(COMMANDS)


@pytest.mark.parametrize("text", COMMANDS, ids=[text.replace(VALUE, "...") for text in COMMANDS])
def test_printed_command_can_be_parsed(text: str) -> None:
    """A command in a remedy also accepts the options that select the pipeline."""
    remedy = "`" + "".join(_with_values(text)) + "`"
    with commands_completed("-p connectors/a.yaml -e b"):
        _, *arguments = shlex.split(completed(remedy).strip("`"))
    parse(typer.main.get_command(app), arguments)


def test_every_printed_command_selects_the_pipeline() -> None:
    """A command from a message or hint, pasted into another shell, must not run in another environment."""
    texts = " ".join(f"`{''.join(_with_values(text))}`" for text in COMMANDS)
    probe_app = typer.Typer()

    @probe_app.command()
    @common_options("output", "yes")
    def probe(_: CommonOptions) -> None:
        print_message(texts)
        raise OutboxError("failed", texts)

    with stderr.capture() as captured:
        result = CliRunner().invoke(probe_app, ["-e", "production", "-p", "other/a.yaml"])
    assert isinstance(result.exception, OutboxError)
    for printed in (captured.get(), result.exception.hint):
        commands = commands_of(printed)
        assert len(commands) == len(COMMANDS)
        assert [command for command in commands if not command.endswith(" -p other/a.yaml -e production")] == []


def _with_values(text: str) -> Iterator[str]:
    for index, character in enumerate(text):
        if character != VALUE:
            yield character
        elif text[index - 1] in " \"'=":
            yield "1"
