"""stuck."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from outbox_kit.cli.console import print_json, print_table, say
from outbox_kit.cli.options import Common, Output
from outbox_kit.operations import stuck as stuck_aggregates


def stuck(
    context: typer.Context,
    older_than: Annotated[
        float, typer.Option("--older-than", min=0.1, help="Seconds that a state may take to arrive.")
    ] = 60,
    resend: Annotated[bool, typer.Option("--resend", help="Write their newest state into the outbox again.")] = False,
) -> None:
    """List aggregates whose newest state is not proven to be on their topic. Exit code 1 when there are some."""
    common: Common = context.obj
    with common.deployment() as target:
        found = stuck_aggregates.find(target, say, older_than=older_than)
        sent = stuck_aggregates.resend(target, found, say) if resend and found else 0
    if common.output is Output.JSON:
        print_json({"stuck": [dataclasses.asdict(entry) for entry in found], "resent": sent})
    elif found:
        heads = ["aggregate_type", "key", "what", "event_id", "since"]
        rows = [[entry.aggregate_type, entry.key, entry.words, entry.event_id, entry.since] for entry in found]
        print_table(heads, rows)
    say(f"{len(found)} aggregates without proof" + (f", {sent} sent again" if resend else ""))
    if found and sent < len(found):
        raise typer.Exit(1)
