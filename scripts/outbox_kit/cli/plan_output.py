"""Output of a plan: a table of changes, dangers, and the order of schema roll-outs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from outbox_kit.changes import Change
from outbox_kit.cli.console import print_message, print_table, stdout
from outbox_kit.deployment import EXCLUDED_OBJECTS, Plan


def print_changes(changes: Sequence[Change], *, to: Console = stdout) -> None:
    """Print the changes as a table. An exclamation mark marks a dangerous change."""
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
    print_table(["system", "object", "action", "change", "reason"], rows, to=to)


def print_plan_notes(plan: Plan) -> None:
    """Print dangers, pending objects that the connector requires, and the order of schema roll-outs."""
    for change in plan.changes:
        if change.danger:
            print_message(f"DANGER  {change.object}: {change.danger}")
        if change in plan.dangerous:
            print_message(f'        requires --allow "{change.object}"')
    if plan.waits_for:
        print_message(f"{EXCLUDED_OBJECTS}: {', '.join(plan.waits_for)}")
    for rollout in plan.rollout:
        print_message(f"roll out the schema of {rollout.aggregate} in this order:")
        for number, step in enumerate(rollout.steps, start=1):
            print_message(f"  {number}. {step}")
