"""outbox destroy."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox_kit import deployment
from outbox_kit.cli.console import print_json, print_message, stderr
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.cli.plan_output import print_changes
from outbox_kit.progress import plural


@common_options("output", "yes")
def destroy(
    common: CommonOptions,
    drop_slot: Annotated[
        bool, typer.Option("--drop-slot", help="Drop the slot although it has undelivered rows; they are lost.")
    ] = False,
    delete_topics: Annotated[
        bool, typer.Option("--delete-topics", help="Delete topics although they have records; every state is lost.")
    ] = False,
    delete_schemas: Annotated[
        bool, typer.Option("--delete-schemas", help="Delete the aggregates' subjects too (soft deletion).")
    ] = False,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="Wait this long for a running apply to end.")
    ] = 0,
) -> None:
    """Delete connector, topics, slot and publication.

    The outbox table and its rows are retained.
    """
    flags = deployment.DestroyOptions(drop_slot, delete_topics, delete_schemas)
    with common.deployment() as target:
        shown = None
        if not common.yes:
            shown = deployment.plan_destroy(target, flags)
            for retained in shown.retained:
                print_message(f"retained: {retained}")
            if shown.changes:
                print_changes(shown.changes, to=stderr)
                for change in filter(lambda entry: entry.danger, shown.changes):
                    print_message(f"DANGER  {change.object}: {change.danger}")
                question = f"Delete {plural(len(shown.changes), 'object')}?"
                common.confirm(question, hint="check the list above, then run `outbox destroy --yes`")
        removal = deployment.destroy(target, print_message, flags, shown=shown, wait_seconds=wait)
    if common.output is Output.JSON:
        changes = [change.to_dict() for change in removal.changes]
        print_json({"changes": changes, "kept": list(removal.retained)})
    for retained in removal.retained:
        print_message(f"retained: {retained}")
    print_message(f"{plural(len(removal.changes), 'object')} deleted" if removal.changes else "nothing to delete")
