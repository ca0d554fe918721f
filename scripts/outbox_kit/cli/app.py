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

# `outbox --help` lists the commands in this order.
TASKS = {
    "Deploy": ("render", "lint", "plan", "apply", "destroy", "adopt"),
    "Inspect": ("verify", "status", "stuck", "log-level"),
    "Control the connector": ("restart", "pause", "resume", "stop", "offsets"),
    "Send states or events again": ("backfill", "republish", "recover", "dead-letter"),
    "Process the outbox table": ("relay", "prune"),
    "Try outbox-kit": ("demo", "stack"),
}
# Modules that implement several commands. Any other module has the name of its command.
SHARED_MODULES = {
    **dict.fromkeys(("plan", "apply"), "deploy"),
    **dict.fromkeys(("status", "restart", "pause", "resume", "stop"), "lifecycle"),
    "republish": "backfill",
}
NAMES = tuple(name for names in TASKS.values() for name in names)


def _module(name: str) -> str:
    return SHARED_MODULES.get(name, name.replace("-", "_"))


@common_options("output", "yes")
def group_callback(common: CommonOptions) -> None:
    """Declare the common options of a command group, so that they can also be given before a subcommand."""


@functools.cache
def _load_command(name: str) -> Any:  # noqa: ANN401 - the command type of Typer is private
    module = import_module(f"outbox_kit.cli.commands.{_module(name)}")
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
        if name not in NAMES:
            raise KeyError(name)
        return _load_command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


def summary(name: str) -> str:
    """Return the first sentence of a command's help, read from the source without importing it."""
    path = Path(__file__).parent / "commands" / f"{_module(name)}.py"
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

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - as in TyperGroup
        for task, names in TASKS.items():
            with formatter.section(task):
                formatter.write_dl([(name, summary(name)) for name in names])


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
