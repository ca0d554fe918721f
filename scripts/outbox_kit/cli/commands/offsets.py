"""offsets show, export, reset."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from outbox_kit import lsn
from outbox_kit.cli.confirmation import confirm
from outbox_kit.cli.console import print_json, print_table, say
from outbox_kit.cli.options import Common, Output
from outbox_kit.operations import offsets

app = typer.Typer(help="Where the connector stands in the database's log, and moving it.", no_args_is_help=True)


class Target(StrEnum):
    """Where a reset can go to without a file."""

    SLOT = "slot"


@app.command()
def show(context: typer.Context) -> None:
    """Show the positions of connector, slot and server, and what the differences mean."""
    common: Common = context.obj
    with common.deployment() as target:
        found = offsets.show(target)
    if common.output is Output.JSON:
        print_json(found.to_dict())
        return
    rows = [
        ["connector", lsn.both(found.connector)],
        ["slot, confirmed_flush_lsn", lsn.both(found.confirmed)],
        ["slot, restart_lsn", lsn.both(found.restart)],
        ["server", lsn.both(found.server)],
    ]
    print_table(["position", "lsn"], rows)
    for sentence in found.meaning():
        say(sentence)


@app.command()
def export(context: typer.Context, file: Annotated[Path, typer.Argument(help="A new file; JSON.")]) -> None:
    """Write offsets, slot position and identity to a file that only its owner can read."""
    common: Common = context.obj
    with common.deployment() as target:
        offsets.export(target, file)
    say(f"written: {file}")


@app.command()
def reset(
    context: typer.Context,
    to: Annotated[Target, typer.Option("--to", help="slot: the slot's confirmed position.")] = Target.SLOT,
    source: Annotated[Path | None, typer.Option("--from", help="A file of `offsets export`, instead of --to.")] = None,
    skip: Annotated[bool, typer.Option("--skip-rows", help="Accept a position that leaves rows out.")] = False,
) -> None:
    """Stop, back up, set the connector's position, and resume. Says first what is sent again or lost."""
    common: Common = context.obj
    del to  # the one target beside a file; named so that it can be said
    with common.deployment() as target:
        move = offsets.preview(target, source, skip=skip)
        say(f"the connector stands at {lsn.both(move.before)}; a reset goes to {lsn.both(move.after)}")
        say(f"as of now: {move.words(None)}")
        hint = "look at `outbox offsets show`, then `outbox offsets reset --yes`"
        confirm(common, "Stop the connector and reset its position?", hint=hint)
        done = offsets.reset(target, source, say, skip=skip)
    if common.output is Output.JSON:
        print_json(
            {
                "backup": str(done.backup),
                "before": lsn.pair(done.before),
                "after": lsn.pair(done.after),
                "rows": done.rows,
                "resumed": done.resumed,
            }
        )
