"""outbox adopt."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from outbox_kit import backfill
from outbox_kit.cli.confirmation import confirm
from outbox_kit.cli.console import print_json, say
from outbox_kit.cli.options import Common, Output


def adopt(
    context: typer.Context,
    old_connector: Annotated[str, typer.Argument(help="A running Debezium connector that the kit did not make.")],
) -> None:
    """Take over slot and position of another connector, then delete it: no gap, no double send."""
    common: Common = context.obj
    with common.deployment() as target:
        question = f"Stop and delete connector {old_connector}, and let {target.pipeline.connector.name} go on?"
        confirm(common, question, hint="the same command with --yes does not ask")
        done = backfill.adopt(target, old_connector, say)
    if common.output is Output.JSON:
        print_json(dataclasses.asdict(done))
    say(f"connector {done.connector} has taken over from {done.old}")
