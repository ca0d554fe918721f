"""outbox dead-letter replay."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import typer

from outbox_events.text import plural
from outbox_kit.cli import exit_codes
from outbox_kit.cli.commands.dead_letter.options import OptionalPlaceArgument, TopicOption, selected_dead_letters
from outbox_kit.cli.confirmation import confirm
from outbox_kit.cli.console import print_json, print_message
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.dead_letters.dead_letter_topic import DeadLetter, DeadLetterQueue, dead_letter_queue
from outbox_kit.deployment import Deployment
from outbox_kit.replay.send_records import Replay, replay_records
from outbox_kit.replay.send_rows import replay_rows, republish_states


@common_options("output", "yes")
def replay(
    common: CommonOptions,
    place: OptionalPlaceArgument = None,
    replay_all: Annotated[bool, typer.Option("--all", help="Replay all unacknowledged dead letters.")] = False,
    republish: Annotated[
        bool, typer.Option("--republish", help="Send the latest states of the aggregates, not the rows.")
    ] = False,
    topic: TopicOption = None,
) -> None:
    """Send dead letters again and acknowledge them.

    A row is written to the outbox again, with the same event id; a record of a consumer is sent to its topic and
    partition. The command asks first, and refuses a state that is older than that on the topic. Exit code 1 when a dead
    letter was refused.
    """
    with common.deployment() as deployment:
        source = dead_letter_queue(deployment.pipeline, topic)
        if republish and not source.of_connector:
            raise typer.BadParameter("only rows of the connector have a state", param_hint="--republish")
        dead_letters = selected_dead_letters(deployment, place, topic, select_all=replay_all)
        result = Replay()
        if dead_letters:
            action = f"{'Republish' if republish else 'Replay'} {plural(len(dead_letters), 'dead letter')}"
            confirm(common, deployment, action, hint=f"run `outbox dead-letter list{source.option}`, then add --yes")
            result = _replay(deployment, dead_letters, source, republish=republish)
    _print_result(result, common.output)
    if result.refused:
        raise typer.Exit(exit_codes.ERROR)


def _replay(
    deployment: Deployment, dead_letters: Collection[DeadLetter], source: DeadLetterQueue, *, republish: bool
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
