"""outbox plan, outbox apply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from outbox_kit import deployment
from outbox_kit.changes import System
from outbox_kit.cli import exit_codes
from outbox_kit.cli.console import print_json, print_message, stderr, write_report
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.cli.plan_output import print_changes, print_plan_notes
from outbox_kit.deployment import Plan
from outbox_kit.errors import ConfigurationError
from outbox_kit.progress import plural

Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="SYSTEM", help="Limit to postgres, kafka, registry or connect; repeatable."),
]
Recover = Annotated[
    bool,
    typer.Option("--recover", help="Accept a replaced slot or database: raise the source epoch, start at the slot."),
]


@common_options("output")
def plan(
    common: CommonOptions,
    only: Only = None,
    recover: Recover = False,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Write the plan for `outbox apply --plan FILE`.")
    ] = None,
) -> None:
    """Show the changes that apply would make.

    Exit code 3 when changes are pending.
    """
    with common.deployment() as target:
        pending = deployment.make_plan(target, recover=recover, only=_systems(only))
    if save is not None:
        write_report(save, json.dumps(deployment.to_document(pending), indent=2) + "\n")
    if common.output is Output.JSON:
        print_json(deployment.to_document(pending))
    elif pending.changes:
        print_changes(pending.changes)
        print_plan_notes(pending)
    else:
        print_message("no changes: the deployment matches the files")
    if pending.changes:
        raise typer.Exit(exit_codes.CHANGES_PENDING)


@common_options("output", "yes")
def apply(
    common: CommonOptions,
    only: Only = None,
    recover: Recover = False,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="OBJECT", help="Allow a dangerous change of this object; repeatable."),
    ] = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Make exactly the changes of a saved plan.")
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="Wait this long for another apply to end.")
    ] = 0,
    rollback: Annotated[
        bool,
        typer.Option("--rollback/--no-rollback", help="Restore the previous config of a connector that fails."),
    ] = True,
) -> None:
    """Deploy database objects, topics, schemas and connector."""
    systems = _systems(only)
    with common.deployment() as target:
        shown = _read_saved_plan(plan_file, recover, systems) if plan_file else None
        if shown is not None:
            recover, systems = shown.recover, list(shown.only)
        if not common.yes:
            shown = shown or deployment.make_plan(target, recover=recover, only=systems)
            if shown.changes:
                print_changes(shown.changes, to=stderr)
                print_plan_notes(shown)
                question = f"Make {plural(len(shown.changes), 'change')}?"
                common.confirm(question, hint="run `outbox plan`, then `outbox apply --yes`")
        changes = deployment.apply(
            target,
            print_message,
            recover=recover,
            only=systems,
            allow=allow or [],
            shown=shown,
            wait_seconds=wait,
            rollback=rollback,
        )
    if common.output is Output.JSON:
        print_json({"changes": [change.to_dict() for change in changes]})
    print_message(f"{plural(len(changes), 'change')} made" if changes else "nothing to change")


def _systems(names: list[str] | None) -> list[System]:
    """Return the systems named, in the order of deployment. Raises BadParameter."""
    unknown = set(names or []).difference(deployment.SYSTEMS)
    if unknown:
        message = f"unknown system {min(unknown)!r}; known: {', '.join(deployment.SYSTEMS)}"
        raise typer.BadParameter(message, param_hint="--only")
    return [system for system in deployment.SYSTEMS if system in (names or [])]


def _read_saved_plan(path: Path, recover: bool, only: list[System]) -> Plan:
    if recover or only:
        message = "--plan cannot be combined with --recover or --only"
        raise ConfigurationError(message, "give them to `outbox plan --save FILE`")
    return deployment.read_plan(path)
