"""Assemble the Typer application from all commands and command groups."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from outbox_kit import __version__
from outbox_kit.cli.options import CommonOptions, common_options

# Task → command → module of cli/commands. `outbox --help` lists the commands in this order.
TASKS = {
    "Deploy": {
        "render": "render",
        "lint": "lint",
        "plan": "deploy",
        "apply": "deploy",
        "destroy": "destroy",
        "adopt": "adopt",
    },
    "Inspect": {"verify": "verify", "status": "lifecycle", "stuck": "stuck", "log-level": "log_level"},
    "Control the connector": {
        "restart": "lifecycle",
        "pause": "lifecycle",
        "resume": "lifecycle",
        "stop": "lifecycle",
        "offsets": "offsets",
    },
    "Send states or events again": {
        "backfill": "backfill",
        "republish": "backfill",
        "recover": "recover",
        "dead-letter": "dead_letter",
    },
    "Process the outbox table": {"relay": "relay", "prune": "prune"},
    "Try outbox-kit": {"demo": "demo", "stack": "stack"},
}
MODULES = {command: module for commands in TASKS.values() for command, module in commands.items()}


@common_options("output", "yes")
def group_callback(common: CommonOptions) -> None:
    """Declare the common options of a command group, so that they can also be given before a subcommand."""


@functools.cache
def _load_command(name: str) -> Any:  # noqa: ANN401 - the command type of Typer is private
    module = import_module(f"outbox_kit.cli.commands.{MODULES[name]}")
    parent = typer.Typer(rich_markup_mode=None, add_completion=False)
    parent.callback()(group_callback)
    if hasattr(module, "app"):
        parent.add_typer(module.app, name=name, callback=group_callback)
    else:
        parent.command(name)(getattr(module, name.replace("-", "_")))
    return typer.main.get_command(parent).commands[name]  # type: ignore[attr-defined]


class Commands(Mapping[str, Any]):
    """All commands by name. A command is imported when it is looked up, because importing all takes a second."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - as in _load_command
        return _load_command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


def summary(name: str) -> str:
    """Return the first sentence of a command's help, read from the source without importing it."""
    path = Path(__file__).parent / "commands" / f"{MODULES[name]}.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=function) if function == name.replace("-", "_"):
                return (ast.get_docstring(node) or "").partition("\n")[0]
            case ast.Assign(targets=[ast.Name("app")], value=ast.Call(keywords=keywords)):
                return str(ast.literal_eval(next(keyword.value for keyword in keywords if keyword.arg == "help")))
    raise KeyError(name)


class CommandsByTask(TyperGroup):
    """The root command."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - as in TyperGroup
        super().__init__(**{**attributes, "commands": Commands()})

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - as in TyperGroup
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - as in TyperGroup
        for task, commands in TASKS.items():
            with formatter.section(task):
                formatter.write_dl([(name, summary(name)) for name in commands])


app = typer.Typer(
    cls=CommandsByTask,
    epilog="The common options can be given before or after the command.\n\n"
    "Several commands send states or events again. See docs/sending-again.md to choose one of them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"outbox-kit {__version__}")
        raise typer.Exit


@app.callback()
@common_options("output", "yes")
def outbox(
    common: CommonOptions,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Deploy, verify and operate a transactional outbox."""
