"""Output of a plan: a table of changes, their dangers, and the safe order of steps for each schema change."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from outbox_kit.cli.console import print_message, print_table, stdout
from outbox_kit.deployment import EXCLUDED_OBJECTS_MESSAGE, Plan
from outbox_kit.results.changes import Change


def print_changes(changes: Sequence[Change], *, console: Console = stdout) -> None:
    """Print the changes as a table. An exclamation mark follows the action of a change with a danger."""
    rows = [
        [
            change.system,
            change.target,
            f"{change.operation} !" if change.danger else change.operation,
            " → ".join(filter(None, (change.before, change.after))),
            change.reason,
        ]
        for change in changes
    ]
    print_table(["system", "object", "action", "change", "reason"], rows, console=console)


def print_plan_notes(plan: Plan) -> None:
    """Print the dangers, the excluded objects that the connector requires, and the steps for each schema change."""
    for change in plan.changes:
        if change.danger:
            print_message(f"DANGER  {change.object}: {change.danger}")
        if change in plan.dangerous:
            print_message(f'        requires --allow "{change.object}"')
    if plan.waits_for:
        print_message(f"{EXCLUDED_OBJECTS_MESSAGE}: {', '.join(plan.waits_for)}")
    for roll_out in plan.roll_outs:
        print_message(f"change the schema of aggregate type {roll_out.aggregate} in this order:")
        for number, step in enumerate(roll_out.steps, start=1):
            print_message(f"  {number}. {step}")
