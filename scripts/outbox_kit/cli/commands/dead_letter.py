"""Implement `outbox dead-letter`, with the subcommands list, show, replay, drop and acknowledge."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from functools import partial
from typing import Annotated

import typer

from outbox_events.kafka.record import text_headers
from outbox_events.text import plural
from outbox_kit.cli import exit_codes
from outbox_kit.cli.confirmation import confirm
from outbox_kit.cli.console import print_json, print_message, print_table
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.dead_letters.dead_letter import DeadLetter, Place
from outbox_kit.dead_letters.dead_letter_topic import DeadLetterTopic
from outbox_kit.delivery.stale_dead_letters import list_stale
from outbox_kit.deployment import Deployment
from outbox_kit.replay.replay_records import Replay, replay_records
from outbox_kit.replay.replay_rows import replay_rows, republish_states

app = typer.Typer(help="List, show, replay and acknowledge dead letters.", no_args_is_help=True)
COLUMNS = ["place", "time", "aggregate_type", "key", "event_id", "reason", "message"]
CONSUMER_COLUMNS = ["place", "time", "group", "topic", "record", "key", "event_id", "reason", "message"]
TopicOption = Annotated[
    str | None,
    typer.Option("--topic", metavar="NAME", help="Dead letter topic of a consumer. Default: the connector's topic."),
]
PlaceArgument = Annotated[str, typer.Argument(metavar="PARTITION/OFFSET", help="Place shown by `dead-letter list`.")]
OptionalPlaceArgument = Annotated[
    str | None, typer.Argument(metavar="PARTITION/OFFSET", help="Place shown by `dead-letter list`.")
]


@app.command("list")
@common_options("output")
def list_dead_letters(
    common: CommonOptions,
    include_acknowledged: Annotated[bool, typer.Option("--all", help="Include acknowledged dead letters.")] = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="List only the dead letters whose key has no newer record on its topic.")
    ] = False,
    topic: TopicOption = None,
) -> None:
    """List the dead letters that are not acknowledged.

    The output contains keys and reasons, never payloads.
    """
    with common.deployment(reads=["kafka"]) as deployment:
        source = deployment.dead_letters(topic)
        read = partial(list_stale, deployment, source) if stale else source.read
        dead_letters = read(list_all=include_acknowledged)
    columns = COLUMNS if source.of_connector else CONSUMER_COLUMNS
    documents = [dead_letter.to_dict() for dead_letter in dead_letters]
    if common.output is Output.JSON:
        print_json({"dead_letters": documents})
    elif documents:
        print_table(columns, [[str(document.get(column, "")) for column in columns] for document in documents])
    states = [*(["stale"] if stale else []), *([] if include_acknowledged else ["not acknowledged"])]
    print_message(f"{plural(len(dead_letters), 'dead letter')} {', '.join(states)}".rstrip())


@app.command()
@common_options()
def show(common: CommonOptions, place: PlaceArgument, topic: TopicOption = None) -> None:
    """Print one dead letter as JSON, including its payload."""
    with common.deployment(reads=["kafka"]) as deployment:
        source = deployment.dead_letters(topic)
        found = source.read_one(parse_place(place))
    if source.of_connector:
        content = {"row": _parse_row(found.value or b"")}
    else:
        content = {"headers": text_headers(found.record), **_describe_value(found.value)}
    print_json({**found.to_dict(), **content})


def _parse_row(row: bytes) -> object:
    """Return the row as a JSON value, or as text if it is not JSON."""
    text = row.decode(errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _describe_value(value: bytes | None) -> dict[str, object]:
    """Return the value as text, or in base64 if it is not UTF-8."""
    try:
        return {"value": None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(value or b"").decode()}


@app.command()
@common_options("output", "yes")
def replay(
    common: CommonOptions,
    place: OptionalPlaceArgument = None,
    replay_all: Annotated[bool, typer.Option("--all", help="Replay all unacknowledged dead letters.")] = False,
    republish: Annotated[
        bool, typer.Option("--republish", help="Send the aggregates' latest states instead of the rows.")
    ] = False,
    topic: TopicOption = None,
) -> None:
    """Send dead letters again and acknowledge them.

    The connector's rows are written to the outbox again with the same event ids. A consumer's records are sent again to
    their topics and partitions. The command asks for confirmation, and refuses a state that is older than the state on
    the topic. Exit with code 1 if a dead letter was refused.
    """
    with common.deployment(writes=["kafka"]) as deployment:
        source = deployment.dead_letters(topic)
        if republish and not source.of_connector:
            raise typer.BadParameter("only dead letters of the connector can be republished", param_hint="--republish")
        dead_letters = selected_dead_letters(source, place, select_all=replay_all)
        result = Replay()
        if dead_letters:
            action = f"{'Republish' if republish else 'Replay'} {plural(len(dead_letters), 'dead letter')}"
            _confirm(common, deployment, source, action)
            result = _replay(deployment, dead_letters, source, republish=republish)
    _print_result(result, common.output)
    if result.refused:
        raise typer.Exit(exit_codes.ERROR)


def _replay(
    deployment: Deployment, dead_letters: Collection[DeadLetter], source: DeadLetterTopic, *, republish: bool
) -> Replay:
    if republish:
        return republish_states(deployment, dead_letters, print_message)
    if source.of_connector:
        return replay_rows(deployment, dead_letters, print_message)
    return replay_records(deployment, source.name, dead_letters)


def _print_result(result: Replay, output: Output) -> None:
    if output is Output.JSON:
        refused = [{"place": str(dead_letter.place), "problem": error.message} for dead_letter, error in result.refused]
        print_json({"replayed": [str(dead_letter.place) for dead_letter in result.replayed], "refused": refused})
    for _, error in result.refused:
        print_message(f"refused: {error.message}; {error.hint}")
    refused_count = f", {len(result.refused)} refused" if result.refused else ""
    print_message(f"{plural(len(result.replayed), 'dead letter')} replayed{refused_count}")


@app.command()
@common_options("output", "yes")
def drop(
    common: CommonOptions,
    place: OptionalPlaceArgument = None,
    drop_all: Annotated[bool, typer.Option("--all", help="Drop all unacknowledged dead letters.")] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete the records before the first unacknowledged dead letter.")
    ] = False,
    topic: TopicOption = None,
) -> None:
    """Mark dead letters as handled without replaying them.

    Confirmation is required to mark all dead letters or to delete records. --purge alone does not mark dead letters.
    """
    with common.deployment(writes=["kafka"]) as deployment:
        source, count, purged = deployment.dead_letters(topic), 0, 0
        if place is not None or drop_all or not purge:
            dead_letters = selected_dead_letters(source, place, select_all=drop_all)
            if drop_all and dead_letters:
                _confirm(common, deployment, source, f"Drop {plural(len(dead_letters), 'dead letter')}")
            count = source.acknowledge_places([dead_letter.place for dead_letter in dead_letters])
        if purge:
            _confirm(common, deployment, source, f"Delete the acknowledged records of topic {source.name}")
            purged = source.purge()
    if common.output is Output.JSON:
        print_json({"dropped": count, "purged_offsets": purged})
    print_message(f"{plural(count, 'dead letter')} dropped" + (f", {plural(purged, 'offset')} purged" if purge else ""))


@app.command()
@common_options("output", "yes")
def acknowledge(
    common: CommonOptions,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="PARTITION/OFFSET", help="Acknowledge PARTITION up to and including OFFSET."),
    ] = None,
    acknowledge_all: Annotated[bool, typer.Option("--all", help="Acknowledge all existing dead letters.")] = False,
    topic: TopicOption = None,
) -> None:
    """Mark dead letters as handled, without deleting them.

    With --all, the command asks for confirmation, because acknowledged dead letters are no longer listed by default.
    """
    if acknowledge_all == (to is not None):
        raise typer.BadParameter("exactly one of --to PARTITION/OFFSET and --all is required", param_hint="--to")
    with common.deployment(writes=["kafka"]) as deployment:
        source = deployment.dead_letters(topic)
        places = _confirm_all(common, deployment, source) if to is None else [parse_place(to, "--to")]
        count = sum(map(source.acknowledge, places))
    if common.output is Output.JSON:
        print_json({"acknowledged": count})
    print_message(f"{plural(count, 'dead letter')} acknowledged")


def _confirm_all(common: CommonOptions, deployment: Deployment, source: DeadLetterTopic) -> list[Place]:
    """Ask whether to acknowledge all dead letters, and return the place of the last one in each partition.

    The places of dead letters that were removed from the topic are included. Dead letters that arrive after the prompt
    remain unacknowledged, because the user has not seen them.
    """
    dead_letters, removed = source.read(), source.removed_offsets()
    if dead_letters or removed:
        removed_text = f" and up to {sum(removed.values())} that were removed" if removed else ""
        _confirm(common, deployment, source, f"Acknowledge {plural(len(dead_letters), 'dead letter')}{removed_text}")
    last_offsets: dict[int, int] = {}
    for place in [*removed, *(dead_letter.place for dead_letter in dead_letters)]:
        last_offsets[place.partition] = max(place.offset, last_offsets.get(place.partition, 0))
    return [Place(partition, offset) for partition, offset in last_offsets.items()]


def _confirm(common: CommonOptions, deployment: Deployment, source: DeadLetterTopic, action: str) -> None:
    confirm(common, deployment, action, hint=f"run `outbox dead-letter list{source.option}`, then add --yes")


def parse_place(text: str, option: str = "PARTITION/OFFSET") -> Place:
    """Parse a place. Raises BadParameter."""
    place = Place.parse(text)
    if place is None:
        raise typer.BadParameter(f"{text!r} does not have the form PARTITION/OFFSET", param_hint=option)
    return place


def selected_dead_letters(source: DeadLetterTopic, place: str | None, *, select_all: bool) -> list[DeadLetter]:
    """Return the dead letter at `place`, or all dead letters that are not acknowledged.

    Raises BadParameter unless exactly one of the two is selected, and RefusedError if `place` has no dead letter.
    """
    if select_all == (place is not None):
        message = "exactly one of PARTITION/OFFSET and --all is required"
        raise typer.BadParameter(message, param_hint="PARTITION/OFFSET")
    return source.read() if place is None else [source.read_one(parse_place(place))]
