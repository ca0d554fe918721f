"""destroy."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from outbox_kit import deployment
from outbox_kit.cli.confirmation import confirm
from outbox_kit.cli.console import print_json, say
from outbox_kit.cli.options import Common, Output
from outbox_kit.cli.plan_output import show_table


def destroy(
    context: typer.Context,
    drop_slot: Annotated[
        bool, typer.Option("--drop-slot", help="Also when it has rows that were not delivered: they are lost.")
    ] = False,
    delete_topics: Annotated[
        bool, typer.Option("--delete-topics", help="Also those that have records: every state is lost.")
    ] = False,
    delete_schemas: Annotated[
        bool, typer.Option("--delete-schemas", help="The aggregates' subjects too; a soft deletion.")
    ] = False,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for an apply to end.")
    ] = 0,
) -> None:
    """Take connector, topics, slot and publication down, in this order. The outbox table and its rows stay."""
    common: Common = context.obj
    flags = deployment.Flags(drop_slot, delete_topics, delete_schemas)
    with common.deployment() as target:
        shown = None
        if not common.yes:
            shown = deployment.plan_destroy(target, flags)
            _ask(common, shown)
        done = deployment.destroy(target, say, flags, shown=shown, wait_seconds=wait)
    if common.output is Output.JSON:
        changes = [dataclasses.asdict(change) for change in done.changes]
        print_json({"changes": changes, "kept": list(done.kept)})
    for words in done.kept:
        say(f"kept: {words}")
    say(f"{len(done.changes)} objects deleted" if done.changes else "nothing to delete")


def _ask(common: Common, plan: deployment.Removal) -> None:
    """Show a person what would go, and ask."""
    for words in plan.kept:
        say(f"stays: {words}")
    if plan.changes:
        show_table(list(plan.changes), to_person=True)
        for change in plan.changes:
            if change.danger:
                say(f"DANGER  {change.object}: {change.danger}")
        hint = "look at what would go, then `outbox destroy --yes`"
        confirm(common, f"Delete {len(plan.changes)} objects?", hint=hint)
