"""A plan as text: a table of changes, then dangers, pending conditions and schema roll-out steps."""

from __future__ import annotations

from rich.console import Console

from outbox_kit.changes import Change
from outbox_kit.cli.console import print_message, print_table, stdout
from outbox_kit.deployment import Plan

COLUMNS = ["system", "object", "action", "change", "reason"]


def print_changes(changes: list[Change], *, to: Console = stdout) -> None:
    """Print the changes as a table; an exclamation mark shows the dangerous ones."""
    print_table(COLUMNS, [_row(change) for change in changes], to=to)


def _row(change: Change) -> list[str]:
    arrow = " → ".join(filter(None, (change.before, change.after)))
    action = f"{change.operation} !" if change.danger else change.operation
    return [change.system, change.target, action, arrow, change.reason]


def print_plan_notes(plan: Plan) -> None:
    """Print what the table does not show: dangers, what the connector waits for, and the order of roll-outs."""
    for change in plan.changes:
        if change.danger:
            print_message(f"DANGER  {change.object}: {change.danger}")
        if change in plan.dangerous:
            print_message(f'        requires --allow "{change.object}"')
    if plan.waits_for:
        print_message(f"the connector waits for: {', '.join(plan.waits_for)}")
    for entry in plan.rollout:
        print_message(f"roll out the schema of {entry.aggregate} in this order:")
        for number, step in enumerate(entry.steps, start=1):
            print_message(f"  {number}. {step}")
