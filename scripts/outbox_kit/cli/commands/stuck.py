"""Implement `outbox stuck`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from outbox_events.text import plural
from outbox_kit.cli import exit_codes
from outbox_kit.cli.confirmation import MaxDeletionsOption, confirm_misplaced, confirm_tombstones
from outbox_kit.cli.console import print_json, print_message, print_table
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.deployment import Deployment
from outbox_kit.operations import stuck as stuck_aggregates
from outbox_kit.operations.misplaced_states import misplaced_states
from outbox_kit.operations.preconditions import DEFAULT_LIMIT
from outbox_kit.operations.state_comparison import StuckAggregate
from outbox_kit.results.changes import System
from outbox_kit.results.repair_commands import recover_steps


@common_options("output", "yes")
def stuck(
    common: CommonOptions,
    older_than: Annotated[
        float,
        typer.Option("--older-than", min=0.1, metavar="SECONDS", help="Ignore states younger than this many seconds."),
    ] = 60,
    resend: Annotated[bool, typer.Option("--resend", help="Write the states of the stuck aggregates again.")] = False,
    max_deletions: MaxDeletionsOption = DEFAULT_LIMIT,
) -> None:
    """List aggregates whose topic might lack their latest state.

    With --resend, the command asks for confirmation before it writes tombstones for deleted aggregates. Exit with code
    1 if an aggregate is stuck, unless --resend wrote the state of every stuck aggregate again.
    """
    systems: tuple[System, ...] = ("postgres", "kafka")
    with common.deployment(reads=systems, writes=systems if resend else ()) as deployment:
        aggregates = stuck_aggregates.list_stuck(deployment, print_message, older_than=older_than)
        resent_count = _resend(common, deployment, aggregates, max_deletions) if resend else 0
    if common.output is Output.JSON:
        print_json({"stuck": [dataclasses.asdict(entry) for entry in aggregates], "resent": resent_count})
    elif aggregates:
        columns = ["aggregate_type", "key", "problem", "event_id", "since"]
        rows = [[entry.aggregate_type, entry.key, entry.problem, entry.event_id, entry.since] for entry in aggregates]
        print_table(columns, rows)
        if any(entry.ahead for entry in aggregates):
            print_message(f"stop the source of the records that are ahead; {recover_steps(deployment.pipeline)}")
    print_message(f"{plural(len(aggregates), 'stuck aggregate')}" + (f", {resent_count} sent again" if resend else ""))
    if resent_count < len(aggregates):
        raise typer.Exit(exit_codes.ERROR)


def _resend(common: CommonOptions, deployment: Deployment, aggregates: list[StuckAggregate], max_deletions: str) -> int:
    """Ask the user to confirm the tombstones. Then write the latest states, and return the number of outbox rows."""
    keys = stuck_aggregates.keys_to_resend(deployment, aggregates)
    tombstones = confirm_tombstones(common, deployment, keys, max_deletions, exact=True)
    misplaced = misplaced_states(deployment, aggregates)
    confirm_misplaced(common, deployment, list(misplaced.values()), max_deletions)
    return stuck_aggregates.resend(deployment, keys, print_message, tombstones=tombstones, misplaced=misplaced)
