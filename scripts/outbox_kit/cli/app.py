"""Puts the commands together."""

from __future__ import annotations

from pathlib import Path
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
    render,
    stack,
    stuck,
    verify,
)
from outbox_kit.cli.options import Common, Output

app = typer.Typer(
    help="Deploys, proves and drains a transactional outbox.",
    epilog="Global options may stand before or after the command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("render")(render.render)
app.command("lint")(lint.lint)
app.command("plan")(deploy.plan)
app.command("apply")(deploy.apply)
app.command("destroy")(destroy.destroy)
app.command("verify")(verify.verify)
app.command("backfill")(backfill.backfill)
app.command("republish")(backfill.republish)
app.command("log-level")(log_level.log_level)
app.command("adopt")(adopt.adopt)
app.command("demo")(demo.demo)
app.command("status")(lifecycle.status)
app.command("restart")(lifecycle.restart)
app.command("pause")(lifecycle.pause)
app.command("resume")(lifecycle.resume)
app.command("stop")(lifecycle.stop)
app.command("stuck")(stuck.stuck)
app.add_typer(offsets.app, name="offsets")
app.add_typer(dead_letter.app, name="dead-letter")
app.add_typer(stack.app, name="stack")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"outbox-kit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    pipeline: Annotated[Path, typer.Option("-p", "--pipeline", help="Pipeline file.", envvar="OUTBOX_PIPELINE")] = Path(
        "connectors/library.yaml"
    ),
    environment: Annotated[
        str,
        typer.Option("-e", "--environment", help="A file in environments/, by name.", envvar="OUTBOX_ENVIRONMENT"),
    ] = "local",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Wins over the files; again for more. KEY: a.b or environment.a.b."
        ),
    ] = None,
    output: Annotated[Output, typer.Option("--output", help="What goes to stdout.")] = Output.TABLE,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[  # noqa: ARG001 - the callback acts on it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Keep the options that every command shares."""
    context.obj = Common(pipeline, environment, output, yes, debug, tuple(settings or ()))
