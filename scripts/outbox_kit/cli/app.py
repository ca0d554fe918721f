"""Assemble the Typer application from all commands and command groups."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from outbox_common.interrupts import ended_by_signals
from outbox_kit import __version__
from outbox_kit.cli.options import CommonOptions, common_options

# Commands by task, with the first sentence of their help. `outbox --help` shows them without importing the commands.
TASKS = {
    "Deploy": {
        "init": "Write the files of a project for an existing database.",
        "doctor": "Check addresses, logins and database privileges, and print missing grants.",
        "render": "Print the connector config, or an SQL script.",
        "lint": "Check pipeline files. Only --connect accesses the network.",
        "plan": "Show the changes that `outbox apply` would make.",
        "apply": "Deploy the database objects, topics, schemas and connector.",
        "destroy": "Delete the connector, slot, publication and topics.",
        "adopt": "Replace a connector that outbox-kit did not create.",
    },
    "Inspect": {
        "verify": "Check the deployed systems, and send a canary event.",
        "status": "Show the state of every system, the connector, its slot and unacknowledged dead letters.",
        "stuck": "List aggregates whose topic might lack their latest state.",
        "log-level": "Show a worker's log levels, or set a level on every worker.",
    },
    "Control the connector": {
        "restart": "Restart the connector and its tasks, and wait for RUNNING.",
        "pause": "Pause the connector.",
        "resume": "Resume a paused or stopped connector, and wait for RUNNING.",
        "stop": "Stop the connector.",
        "offsets": "Show, export and reset the connector's offset.",
    },
    "Send states or events again": {
        "backfill": "Write the latest state of every aggregate to the outbox.",
        "republish": "Write the latest state of selected aggregates to the outbox.",
        "recover": "Recover from a lost slot or a replaced database.",
        "dead-letter": "List, show, replay and acknowledge dead letters.",
    },
    "Process the outbox table": {
        "relay": "Send outbox rows by polling the table, without the connector.",
        "prune": "Delete outbox rows whose delivery to their topic is proven.",
        "senders": "List and recover services that send without a connector.",
    },
    "Try outbox-kit": {
        "demo": "Run the worked example on the embedded stack.",
        "stack": "Start, stop and inspect the embedded stack.",
    },
}
# Modules that implement several commands. Any other module has the name of its command.
SHARED_MODULES = {
    **dict.fromkeys(("plan", "apply"), "deploy"),
    **dict.fromkeys(("status", "restart", "pause", "resume", "stop"), "lifecycle"),
    "republish": "backfill",
}


@common_options("output", "yes")
def group_callback(common: CommonOptions) -> None:
    """Declare the common options of a command group, so that they can also be given before a subcommand."""


def _load_command(name: str) -> Any:  # noqa: ANN401 - the command type of Typer is private
    function = name.replace("-", "_")
    with ended_by_signals():
        module = import_module(f"outbox_kit.cli.commands.{SHARED_MODULES.get(name, function)}")
    parent = typer.Typer(rich_markup_mode=None, add_completion=False)
    parent.callback()(group_callback)
    if hasattr(module, "app"):
        parent.add_typer(module.app, name=name, callback=group_callback)
    else:
        parent.command(name)(getattr(module, function))
    return typer.main.get_command(parent).commands[name]  # type: ignore[attr-defined]


class RootCommand(TyperGroup):
    """The command `outbox`. It imports a command when the command is used, because importing all takes a second."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - as in TyperGroup
        names = [name for commands in TASKS.values() for name in commands]
        super().__init__(**{**attributes, "commands": dict.fromkeys(names)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 - as in TyperGroup
        return _load_command(cmd_name) if cmd_name in self.commands else None

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as in TyperGroup
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            unknown, command = getattr(error, "option_name", ""), getattr(error, "ctx", None)
            if unknown == "--yes" and command and any("--confirm" in entry.opts for entry in command.command.params):
                error.possibilities = ["--confirm PIPELINE@ENVIRONMENT"]  # type: ignore[attr-defined]
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - as in TyperGroup
        for task, summaries in TASKS.items():
            with formatter.section(task):
                formatter.write_dl(list(summaries.items()))


app = typer.Typer(
    cls=RootCommand,
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
