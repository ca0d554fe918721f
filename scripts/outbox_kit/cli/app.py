"""Assemble the Typer application from all commands and command groups."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox_kit import __version__
from outbox_kit.cli.commands import (
    adopt,
    backfill,
    dead_letter,
    demo,
    deploy,
    destroy,
    lifecycle,
    lint,
    log_level,
    offsets,
    prune,
    recover,
    relay,
    render,
    stack,
    stuck,
    verify,
)
from outbox_kit.cli.options import CommonOptions, common_options

app = typer.Typer(
    epilog="The common options can be given before or after the command.\n\n"
    "Several commands send states or events again. See docs/sending-again.md to choose one of them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    render.render,
    lint.lint,
    deploy.plan,
    deploy.apply,
    destroy.destroy,
    verify.verify,
    backfill.backfill,
    backfill.republish,
    relay.relay,
    adopt.adopt,
    log_level.log_level,
    demo.demo,
    lifecycle.status,
    lifecycle.restart,
    lifecycle.pause,
    lifecycle.resume,
    lifecycle.stop,
    stuck.stuck,
    prune.prune,
    recover.recover,
):
    app.command()(command)


@common_options("output", "yes")
def group_callback(common: CommonOptions) -> None:
    """Declare the common options of a command group, so that they can also be given before a subcommand."""


for name, commands in (("offsets", offsets.app), ("dead-letter", dead_letter.app), ("stack", stack.app)):
    app.add_typer(commands, name=name, callback=group_callback)


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
