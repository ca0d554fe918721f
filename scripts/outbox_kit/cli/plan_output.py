"""How a plan is shown: a table with dangers and the order of a schema roll-out below it, or JSON."""

from __future__ import annotations

from outbox_kit.changes import Change
from outbox_kit.cli.console import print_table, say, words
from outbox_kit.deployment import Plan

HEADS = ["system", "object", "action", "change", "why"]


def show_table(changes: list[Change], *, to_person: bool = False) -> None:
    """The changes; to stderr where a question follows."""
    print_table(HEADS, [_row(change) for change in changes], console=words if to_person else None)


def _row(change: Change) -> list[str]:
    arrow = " → ".join(filter(None, (change.before, change.after)))
    return [change.system, change.object, f"{change.action} !" if change.danger else change.action, arrow, change.why]


def say_notes(plan: Plan) -> None:
    """Dangers, what is missing, and the order of roll-outs: words beside the table."""
    for change in plan.changes:
        if change.danger:
            say(f"DANGER  {change.object}: {change.danger}")
        if change in plan.dangerous:
            say(f'        needs --allow "{change.object}"')
    if plan.waits_for:
        say(f"the connector waits for: {', '.join(plan.waits_for)}")
    for entry in plan.rollout:
        say(f"safe order for the schema of {entry.aggregate}:")
        for number, step in enumerate(entry.steps, start=1):
            say(f"  {number}. {step}")
