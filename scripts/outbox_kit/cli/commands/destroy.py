"""outbox destroy."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox_events.text import plural
from outbox_kit import deployment as deployments
from outbox_kit.cli.confirmation import ConfirmOption, confirm_names, require_names
from outbox_kit.cli.console import print_changes, print_json, print_message, stderr
from outbox_kit.cli.options import CommonOptions, Output, WaitOption, common_options


@common_options("output")
def destroy(
    common: CommonOptions,
    drop_slot: Annotated[
        bool, typer.Option("--drop-slot", help="Drop the slot even if undelivered rows are lost as a result.")
    ] = False,
    delete_topics: Annotated[
        bool, typer.Option("--delete-topics", help="Delete topics even if they contain records.")
    ] = False,
    delete_schemas: Annotated[
        bool, typer.Option("--delete-schemas", help="Also delete the aggregates' schema subjects (soft deletion).")
    ] = False,
    unused: Annotated[
        bool, typer.Option("--unused", help="Delete only topics, and schemas, of removed aggregate types.")
    ] = False,
    wait_seconds: WaitOption = 0,
    confirmed_text: ConfirmOption = None,
) -> None:
    """Delete the connector, slot, publication and topics.

    The command asks for the names of the pipeline and the environment. A topic that contains records is deleted only
    with --delete-topics. The outbox table and its rows are retained.
    """
    options = deployments.DestroyOptions(drop_slot, delete_topics, delete_schemas, unused)
    with common.deployment() as deployment:
        shown_removal = None
        if confirmed_text is not None:
            require_names(deployment, confirmed_text)
        else:
            shown_removal = deployments.plan_destroy(deployment, options)
            for description in shown_removal.retained:
                print_message(f"retained: {description}")
            if shown_removal.changes:
                print_changes(shown_removal.changes, console=stderr)
                for change in filter(lambda change: change.danger, shown_removal.changes):
                    print_message(f"DANGER  {change.object}: {change.danger}")
                action = f"Delete {plural(len(shown_removal.changes), 'object')}"
                confirm_names(deployment, action, hint="check the objects listed above")
        removal = deployments.destroy(
            deployment, print_message, options, shown_removal=shown_removal, wait_seconds=wait_seconds
        )
    if common.output is Output.JSON:
        changes = [change.to_dict() for change in removal.changes]
        print_json({"changes": changes, "kept": list(removal.retained)})
    for description in removal.retained:
        print_message(f"retained: {description}")
    print_message(f"{plural(len(removal.changes), 'object')} deleted" if removal.changes else "nothing to delete")
