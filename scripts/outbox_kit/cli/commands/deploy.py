"""Implement `outbox plan` and `outbox apply`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from outbox_events.errors import ConfigurationError
from outbox_events.text import plural
from outbox_kit import deployment as deployments
from outbox_kit.cli import exit_codes
from outbox_kit.cli.confirmation import confirm
from outbox_kit.cli.console import print_changes, print_json, print_message, stderr, write_file
from outbox_kit.cli.options import AllowOption, CommonOptions, Output, WaitOption, common_options
from outbox_kit.deployment import Plan
from outbox_kit.results.changes import System

OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="SYSTEM", help="Include only postgres, kafka, registry or connect; repeatable."),
]
RecoverOption = Annotated[
    bool,
    typer.Option("--recover", help="Accept a replaced slot, and increase the source epoch."),
]


@common_options("output")
def plan(
    common: CommonOptions,
    only: OnlyOption = None,
    recover: RecoverOption = False,
    saved_plan_file: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Save the plan to FILE for `outbox apply --plan`.")
    ] = None,
) -> None:
    """Show the changes that `outbox apply` would make.

    Exit with code 3 if changes are pending.
    """
    with common.deployment() as deployment:
        new_plan = deployments.make_plan(deployment, recover=recover, only=_parse_systems(only))
        pending_backfills = deployments.pending_backfill_steps(deployment)
        unused = deployments.unused_topics(deployment) if "kafka" in new_plan.systems else []
    if saved_plan_file is not None:
        write_file(saved_plan_file, json.dumps(deployments.to_document(new_plan), indent=2) + "\n")
    if common.output is Output.JSON:
        print_json(deployments.to_document(new_plan))
    elif new_plan.changes:
        print_changes(new_plan.changes)
        _print_notes(new_plan)
    else:
        print_message("no changes are pending")
    if pending_backfills:
        print_message(f"a backfill is pending: {pending_backfills}")
    if unused:
        names = ", ".join(unused)
        print_message(f"unused topics: {names}; to delete them, run `outbox destroy --unused --delete-topics`")
    if new_plan.changes:
        raise typer.Exit(exit_codes.CHANGES_PENDING)


@common_options("output", "yes")
def apply(
    common: CommonOptions,
    only: OnlyOption = None,
    recover: RecoverOption = False,
    allowed_objects: AllowOption = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Make exactly the changes in the saved plan FILE.")
    ] = None,
    wait_seconds: WaitOption = 0,
    rollback: Annotated[
        bool, typer.Option("--rollback/--no-rollback", help="Restore the last working config if the new config fails.")
    ] = True,
) -> None:
    """Deploy the database objects, topics, schemas and connector."""
    systems = _parse_systems(only)
    with common.deployment() as deployment:
        shown_plan = _read_saved_plan(plan_file, recover, systems) if plan_file else None
        if shown_plan is not None:
            recover, systems = shown_plan.recover, list(shown_plan.only)
        if not common.yes:
            shown_plan = shown_plan or deployments.make_plan(deployment, recover=recover, only=systems)
            if shown_plan.changes:
                print_changes(shown_plan.changes, console=stderr)
                _print_notes(shown_plan)
                action = f"Make {plural(len(shown_plan.changes), 'change')}"
                confirm(common, deployment, action, hint="run `outbox plan`, then `outbox apply --yes`")
        changes = deployments.apply(
            deployment,
            print_message,
            recover=recover,
            only=systems,
            allow=allowed_objects or [],
            shown_plan=shown_plan,
            wait_seconds=wait_seconds,
            rollback=rollback,
        )
        pending_backfills = deployments.pending_backfill_steps(deployment)
    if common.output is Output.JSON:
        print_json({"changes": [change.to_dict() for change in changes]})
    print_message(f"{plural(len(changes), 'change')} made" if changes else "nothing to change")
    if pending_backfills:
        print_message(f"a backfill is pending: {pending_backfills}")


def _parse_systems(names: list[str] | None) -> list[System]:
    """Return the named systems in deployment order. Raises BadParameter for an unknown name."""
    unknown = set(names or []).difference(deployments.SYSTEMS)
    if unknown:
        message = f"unknown system {min(unknown)!r}: use {', '.join(deployments.SYSTEMS)}"
        raise typer.BadParameter(message, param_hint="--only")
    return [system for system in deployments.SYSTEMS if system in (names or [])]


def _read_saved_plan(path: Path, recover: bool, only: list[System]) -> Plan:
    if recover or only:
        message = "--plan cannot be combined with --recover or --only"
        raise ConfigurationError(message, "use --recover and --only with `outbox plan --save FILE`")
    return deployments.read_plan(path)


def _print_notes(plan: Plan) -> None:
    """Print dangers, losses, the excluded objects that the connector requires, and the steps for schema changes."""
    for change in plan.changes:
        if change.danger:
            print_message(f"DANGER  {change.object}: {change.danger}")
        if change in plan.dangerous:
            print_message(f'        requires --allow "{change.object}"')
        if change.loss:
            print_message(f"LOSS    {change.object}: {change.loss}")
    if plan.waits_for:
        print_message(f"{deployments.EXCLUDED_OBJECTS_MESSAGE}: {', '.join(plan.waits_for)}")
    for roll_out in plan.roll_outs:
        print_message(f"change the schema of aggregate type {roll_out.aggregate} in this order:")
        for number, step in enumerate(roll_out.steps, start=1):
            print_message(f"  {number}. {step}")
