"""outbox dead-letter drop, acknowledge."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox_events.text import plural
from outbox_kit.cli.commands.dead_letter.options import (
    OptionalPlaceArgument,
    TopicOption,
    parse_place,
    selected_dead_letters,
)
from outbox_kit.cli.confirmation import confirm
from outbox_kit.cli.console import print_json, print_message
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.dead_letters import dead_letter_topic
from outbox_kit.dead_letters.dead_letter_topic import Place, dead_letter_queue
from outbox_kit.deployment import Deployment


@common_options("output", "yes")
def drop(
    common: CommonOptions,
    place: OptionalPlaceArgument = None,
    drop_all: Annotated[bool, typer.Option("--all", help="Drop all existing dead letters.")] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete the records before the first unacknowledged dead letter, too.")
    ] = False,
    topic: TopicOption = None,
) -> None:
    """Mark dead letters as handled without a replay.

    The command asks before it marks all dead letters, and before it deletes records. --purge alone marks none.
    """
    with common.deployment() as deployment:
        count = purged = 0
        if place is not None or drop_all or not purge:
            dead_letters = selected_dead_letters(deployment, place, topic, select_all=drop_all)
            if drop_all and dead_letters:
                _confirm(common, deployment, topic, f"Drop {plural(len(dead_letters), 'dead letter')}")
            places = [dead_letter.place for dead_letter in dead_letters]
            count = dead_letter_topic.acknowledge_places(deployment.kafka, deployment.pipeline, places, topic=topic)
        if purge:
            name = dead_letter_queue(deployment.pipeline, topic).name
            _confirm(common, deployment, topic, f"Delete the acknowledged records of topic {name}")
            purged = dead_letter_topic.purge(deployment.kafka, deployment.pipeline, topic=topic)
    if common.output is Output.JSON:
        print_json({"dropped": count, "purged_offsets": purged})
    print_message(f"{plural(count, 'dead letter')} dropped" + (f", {plural(purged, 'offset')} purged" if purge else ""))


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

    With --all, the command asks before it marks them, because nothing lists them as open afterwards.
    """
    if acknowledge_all == (to is not None):
        raise typer.BadParameter("exactly one of --to PARTITION/OFFSET and --all is required", param_hint="--to")
    with common.deployment() as deployment:
        places = _confirm_all(common, deployment, topic) if to is None else [parse_place(to, "--to")]
        kafka, pipeline = deployment.kafka, deployment.pipeline
        count = sum(dead_letter_topic.acknowledge(kafka, pipeline, place, topic=topic) for place in places)
    if common.output is Output.JSON:
        print_json({"acknowledged": count})
    print_message(f"{plural(count, 'dead letter')} acknowledged")


def _confirm_all(common: CommonOptions, deployment: Deployment, topic: str | None) -> list[Place]:
    """Ask whether to acknowledge all dead letters; return the last place of each partition.

    Dead letters that arrive after the question remain, because the user has not seen them.
    """
    dead_letters = dead_letter_topic.read_dead_letters(deployment.kafka, deployment.pipeline, topic=topic)
    if dead_letters:
        _confirm(common, deployment, topic, f"Acknowledge {plural(len(dead_letters), 'dead letter')}")
    last_offsets: dict[int, int] = {}
    for dead_letter in dead_letters:
        place = dead_letter.place
        last_offsets[place.partition] = max(place.offset, last_offsets.get(place.partition, 0))
    return [Place(partition, offset) for partition, offset in last_offsets.items()]


def _confirm(common: CommonOptions, deployment: Deployment, topic: str | None, action: str) -> None:
    option = dead_letter_queue(deployment.pipeline, topic).option
    confirm(common, deployment, action, hint=f"run `outbox dead-letter list{option}`, then add --yes")
