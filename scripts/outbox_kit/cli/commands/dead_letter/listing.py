"""outbox dead-letter list, show."""

from __future__ import annotations

import base64
import json
from typing import Annotated

import typer

from outbox_events.kafka.record import text_headers
from outbox_events.text import plural
from outbox_kit.cli.commands.dead_letter.options import (
    PlaceArgument,
    TopicOption,
    parse_place,
)
from outbox_kit.cli.console import print_json, print_message, print_table
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.dead_letters import dead_letter_topic
from outbox_kit.dead_letters.dead_letter_topic import dead_letter_queue
from outbox_kit.delivery.stale_dead_letters import list_stale

COLUMNS = ["place", "time", "aggregate_type", "key", "event_id", "reason", "message"]
CONSUMER_COLUMNS = ["place", "time", "group", "topic", "record", "key", "event_id", "reason", "message"]


@common_options("output")
def list_dead_letters(
    common: CommonOptions,
    include_acknowledged: Annotated[bool, typer.Option("--all", help="Include acknowledged dead letters.")] = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only those without a newer record of their key on its topic.")
    ] = False,
    topic: TopicOption = None,
) -> None:
    """List the dead letters that are not acknowledged.

    The output contains keys and reasons, never payloads.
    """
    with common.deployment() as deployment:
        read = list_stale if stale else dead_letter_topic.list_dead_letters
        dead_letters = read(deployment.kafka, deployment.pipeline, topic=topic, list_all=include_acknowledged)
        columns = COLUMNS if dead_letter_queue(deployment.pipeline, topic).of_connector else CONSUMER_COLUMNS
    documents = [dead_letter.to_dict() for dead_letter in dead_letters]
    if common.output is Output.JSON:
        print_json({"dead_letters": documents})
    elif documents:
        print_table(columns, [[str(document.get(column, "")) for column in columns] for document in documents])
    states = [*(["stale"] if stale else []), *([] if include_acknowledged else ["not acknowledged"])]
    print_message(f"{plural(len(dead_letters), 'dead letter')} {', '.join(states)}".rstrip())


@common_options()
def show(common: CommonOptions, place: PlaceArgument, topic: TopicOption = None) -> None:
    """Print one dead letter as JSON, including its payload."""
    with common.deployment() as deployment:
        if dead_letter_queue(deployment.pipeline, topic).of_connector:
            dead_letter, row = dead_letter_topic.show(deployment.kafka, deployment.pipeline, parse_place(place))
            print_json({**dead_letter.to_dict(), "row": _parse_row(row)})
            return
        stored = dead_letter_topic.read_dead_letter(deployment.kafka, deployment.pipeline, parse_place(place), topic)
    value = stored.record.value()
    content = _describe_value(value if isinstance(value, bytes) else None)
    print_json({**stored.dead_letter.to_dict(), "headers": text_headers(stored.record), **content})


def _parse_row(row: str) -> object:
    try:
        return json.loads(row)
    except ValueError:
        return row


def _describe_value(value: bytes | None) -> dict[str, object]:
    """Return the value as text; in base64 if it is no text."""
    try:
        return {"value": None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(value or b"").decode()}
