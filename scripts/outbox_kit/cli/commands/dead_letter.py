"""dead-letter list, show, acknowledge."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from outbox_kit.cli.console import print_json, print_table, say
from outbox_kit.cli.options import Common, Output
from outbox_kit.operations import dead_letters
from outbox_kit.operations.dead_letters import Place

app = typer.Typer(help="Rows that could not be routed.", no_args_is_help=True)
HEADS = ["place", "time", "aggregate_type", "key", "event_id", "reason", "message"]


@app.command("list")
def list_(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Acknowledged ones too.")] = False,
) -> None:
    """List the dead letters that nobody has acknowledged; keys, never payloads."""
    common: Common = context.obj
    with common.deployment() as target:
        found = dead_letters.listed(target, everything=everything)
    documents = [letter.to_dict() for letter in found]
    if common.output is Output.JSON:
        print_json({"dead_letters": documents})
    elif found:
        print_table(HEADS, [[str(document[head]) for head in HEADS] for document in documents])
    say(f"{len(found)} dead letters{'' if everything else ' not acknowledged'}")


@app.command()
def show(
    context: typer.Context, place: Annotated[str, typer.Argument(help="PARTITION/OFFSET, as `list` prints it.")]
) -> None:
    """Print one dead letter in full: the row as it was written, payload and all."""
    common: Common = context.obj
    with common.deployment() as target:
        letter, row = dead_letters.show(target, _place(place, "PLACE"))
    print_json({**letter.to_dict(), "row": _parsed(row)})


@app.command()
def acknowledge(
    context: typer.Context,
    to: Annotated[str | None, typer.Option("--to", help="PARTITION/OFFSET: that partition up to there.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are there now.")] = False,
) -> None:
    """Mark dead letters as dealt with; nothing is deleted."""
    common: Common = context.obj
    if everything == (to is not None):
        raise typer.BadParameter("one of --to PARTITION/OFFSET and --all", param_hint="--to")
    with common.deployment() as target:
        done = dead_letters.acknowledge(target, None if to is None else _place(to, "--to"))
    if common.output is Output.JSON:
        print_json({"acknowledged": done})
    say(f"{done} dead letters acknowledged")


def _place(text: str, option: str) -> Place:
    place = Place.parse(text)
    if place is None:
        raise typer.BadParameter(f"{text!r} is not PARTITION/OFFSET", param_hint=option)
    return place


def _parsed(row: str) -> object:
    try:
        return json.loads(row)
    except ValueError:
        return row
