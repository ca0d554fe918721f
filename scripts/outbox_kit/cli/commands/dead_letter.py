"""outbox dead-letter: list, show, acknowledge."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from outbox_kit.cli.confirmation import confirm
from outbox_kit.cli.console import print_json, print_message, print_table
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.deployment import Deployment
from outbox_kit.kafka import dead_letters
from outbox_kit.kafka.dead_letters import Place
from outbox_kit.progress import plural

app = typer.Typer(help="List, show and acknowledge rows that could not be routed.", no_args_is_help=True)
COLUMNS = ["place", "time", "aggregate_type", "key", "event_id", "reason", "message"]


@app.command("list")
@common_options("output")
def list_dead_letters(
    common: CommonOptions,
    include_acknowledged: Annotated[bool, typer.Option("--all", help="Include acknowledged dead letters.")] = False,
) -> None:
    """List the dead letters that are not acknowledged.

    The output contains keys and reasons, never payloads.
    """
    with common.deployment() as deployment:
        letters = dead_letters.list_letters(deployment.kafka, deployment.pipeline, list_all=include_acknowledged)
    documents = [letter.to_dict() for letter in letters]
    if common.output is Output.JSON:
        print_json({"dead_letters": documents})
    elif documents:
        print_table(COLUMNS, [[str(document[column]) for column in COLUMNS] for document in documents])
    print_message(plural(len(letters), "dead letter") + ("" if include_acknowledged else " not acknowledged"))


@app.command()
@common_options()
def show(
    common: CommonOptions,
    place: Annotated[str, typer.Argument(metavar="PARTITION/OFFSET", help="Place from `outbox dead-letter list`.")],
) -> None:
    """Print one dead letter as JSON, including its payload."""
    with common.deployment() as deployment:
        letter, row = dead_letters.show(deployment.kafka, deployment.pipeline, _parse_place(place, "PARTITION/OFFSET"))
    print_json({**letter.to_dict(), "row": _parse_row(row)})


@app.command()
@common_options("output", "yes")
def acknowledge(
    common: CommonOptions,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="PARTITION/OFFSET", help="Acknowledge PARTITION up to and including OFFSET."),
    ] = None,
    acknowledge_all: Annotated[bool, typer.Option("--all", help="Acknowledge all existing dead letters.")] = False,
) -> None:
    """Mark dead letters as handled, without deleting them.

    With --all, the command asks before it marks them, because nothing lists them as open afterwards.
    """
    if acknowledge_all == (to is not None):
        raise typer.BadParameter("exactly one of --to PARTITION/OFFSET and --all is required", param_hint="--to")
    with common.deployment() as deployment:
        places = _confirm_all(common, deployment) if to is None else [_parse_place(to, "--to")]
        count = sum(dead_letters.acknowledge(deployment.kafka, deployment.pipeline, place) for place in places)
    if common.output is Output.JSON:
        print_json({"acknowledged": count})
    print_message(f"{plural(count, 'dead letter')} acknowledged")


def _confirm_all(common: CommonOptions, deployment: Deployment) -> list[Place]:
    """Ask whether to acknowledge all dead letters; return the last place of each partition.

    Dead letters that arrive after the question remain, because the user has not seen them.
    """
    letters = dead_letters.list_letters(deployment.kafka, deployment.pipeline)
    if letters:
        action = f"Acknowledge {plural(len(letters), 'dead letter')}"
        confirm(common, deployment, action, hint="run `outbox dead-letter list`, then add --yes")
    last_offsets: dict[int, int] = {}
    for letter in letters:
        place = letter.place
        last_offsets[place.partition] = max(place.offset, last_offsets.get(place.partition, 0))
    return [Place(partition, offset) for partition, offset in last_offsets.items()]


def _parse_place(text: str, option: str) -> Place:
    place = Place.parse(text)
    if place is None:
        raise typer.BadParameter(f"{text!r} does not have the form PARTITION/OFFSET", param_hint=option)
    return place


def _parse_row(row: str) -> object:
    try:
        return json.loads(row)
    except ValueError:
        return row
