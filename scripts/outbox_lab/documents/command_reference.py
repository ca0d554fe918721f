"""Generate the part of docs/cli.md that describes the commands and their options."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer

from outbox_kit.cli.app import app
from outbox_kit.cli.options import DECLARATIONS


def commands() -> str:
    """Return Markdown with one section for each command."""
    return "\n".join(_section(typer.main.get_command(app), "outbox"))


def _section(command: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - the command type of Typer is private
    context = typer.Context(command, info_name=path)
    is_root = path == "outbox"
    parameters = [entry for entry in command.params if is_root or entry.name not in DECLARATIONS]
    common = [f"`{entry.opts[-1]}`" for entry in command.params if not is_root and entry.name in DECLARATIONS]
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield f"## {path}\n\n{command.help}\n\n    {usage}\n"
    if parameters:
        yield "| option or argument | default | description |\n|---|---|---|"
        yield "\n".join(_row(entry, context) for entry in parameters) + "\n"
    if common:
        yield f"Common options: {', '.join(common)}.\n"
    for name in getattr(command, "commands", ()):
        yield from _section(command.get_command(context, name), f"{path} {name}")


def _row(parameter: Any, context: typer.Context) -> str:  # noqa: ANN401 - as in _section
    name, _ = parameter.get_help_record(context)
    if parameter.param_type_name == "argument":
        name = name.partition(" <")[0]  # Typer appends ` <type>`
    variable = f"`${parameter.envvar}`" if parameter.envvar else ""
    cells = [f"`{name}`", " or ".join(filter(None, (variable, _default(parameter)))), parameter.help]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(parameter: Any) -> str:  # noqa: ANN401 - as in _section
    value = parameter.default
    if value is True:
        return f"`{parameter.opts[0]}`"
    if value is None or isinstance(value, bool | list | tuple):
        return ""
    return f"`{value.value if isinstance(value, Enum) else f'{value:g}' if isinstance(value, float) else value}`"
