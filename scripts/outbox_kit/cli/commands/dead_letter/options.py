"""Options and arguments that select dead letters."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox_kit.dead_letters import dead_letter_topic
from outbox_kit.dead_letters.dead_letter_topic import DeadLetter, Place
from outbox_kit.deployment import Deployment

TopicOption = Annotated[
    str | None,
    typer.Option("--topic", metavar="NAME", help="Dead letter topic of a consumer. Default: that of the connector."),
]
PlaceArgument = Annotated[str, typer.Argument(metavar="PARTITION/OFFSET", help="Place from `outbox dead-letter list`.")]
OptionalPlaceArgument = Annotated[
    str | None, typer.Argument(metavar="PARTITION/OFFSET", help="Place from `outbox dead-letter list`.")
]


def parse_place(text: str, option: str = "PARTITION/OFFSET") -> Place:
    """Parse a place. Raises BadParameter."""
    place = Place.parse(text)
    if place is None:
        raise typer.BadParameter(f"{text!r} does not have the form PARTITION/OFFSET", param_hint=option)
    return place


def selected_dead_letters(
    deployment: Deployment, place: str | None, topic: str | None, *, select_all: bool
) -> list[DeadLetter]:
    """Return the dead letter at `place`, or all that are not acknowledged.

    Raises BadParameter unless exactly one of both is selected, and RefusedError if `place` has no dead letter.
    """
    if select_all == (place is not None):
        message = "exactly one of PARTITION/OFFSET and --all is required"
        raise typer.BadParameter(message, param_hint="PARTITION/OFFSET")
    if place is None:
        return dead_letter_topic.read_dead_letters(deployment.kafka, deployment.pipeline, topic=topic)
    return [dead_letter_topic.read_dead_letter(deployment.kafka, deployment.pipeline, parse_place(place), topic)]
