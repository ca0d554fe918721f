"""Puts the commands together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outbox_kit import __version__
from outbox_kit.cli import demo, deploy, stack, verify
from outbox_kit.cli.options import Common, Output

app = typer.Typer(
    help="Deploys, proves and drains a transactional outbox.",
    epilog="Global options may stand before or after the command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("render")(deploy.render)
app.command("plan")(deploy.plan)
app.command("apply")(deploy.apply)
app.command("verify")(verify.verify)
app.command("demo")(demo.demo)
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
    output: Annotated[Output, typer.Option("--output", help="What goes to stdout.")] = Output.TABLE,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[  # noqa: ARG001 - the callback acts on it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Keep the options that every command shares."""
    context.obj = Common(pipeline, environment, output, yes, debug)
