"""plan, apply."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from outbox_kit import deployment
from outbox_kit.changes import System
from outbox_kit.cli.confirmation import confirm
from outbox_kit.cli.console import print_json, say
from outbox_kit.cli.options import Common, Output
from outbox_kit.cli.plan_output import say_notes, show_table
from outbox_kit.deployment import Plan
from outbox_kit.errors import ConfigurationError

CHANGES_PENDING = 3
Only = Annotated[
    list[str],
    typer.Option("--only", metavar="SYSTEM", help="postgres, kafka, registry or connect; may be repeated."),
]
Recover = Annotated[
    bool,
    typer.Option("--recover", help="Slot or database is another one: raise the epoch, take its position."),
]


def plan(
    context: typer.Context,
    only: Only = [],  # noqa: B006 - typer reads the default
    recover: Recover = False,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Keep the plan for `outbox apply --plan FILE`.")
    ] = None,
) -> None:
    """Show what apply would change. Exit code 3 when there is something."""
    common: Common = context.obj
    with common.deployment() as target:
        found = deployment.make_plan(target, recover=recover, only=_systems(only))
    if save is not None:
        save.write_text(json.dumps(deployment.to_document(found), indent=2) + "\n", encoding="utf-8")
    if common.output is Output.JSON:
        print_json(deployment.to_document(found))
    elif found.changes:
        show_table(list(found.changes))
        say_notes(found)
    else:
        say("no changes: everything is as the files say")
    if found.changes:
        raise typer.Exit(CHANGES_PENDING)


def apply(
    context: typer.Context,
    only: Only = [],  # noqa: B006 - typer reads the default
    recover: Recover = False,
    allow: Annotated[
        list[str],
        typer.Option("--allow", metavar="OBJECT", help="Make this dangerous change too; as the plan names it."),
    ] = [],  # noqa: B006 - typer reads the default
    plan_file: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Make exactly the changes of a saved plan.")
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for another apply to end.")
    ] = 0,
    rollback: Annotated[
        bool, typer.Option(" /--no-rollback", help="Leave a connector that FAILED with its new config.")
    ] = True,
) -> None:
    """Bring database, topics, schemas and connector to what the files say."""
    common: Common = context.obj
    systems = _systems(only)
    with common.deployment() as target:
        shown = _saved(plan_file, recover, systems) if plan_file else None
        if shown is not None:
            recover, systems = shown.recover, list(shown.only)
        if not common.yes:
            shown = shown or deployment.make_plan(target, recover=recover, only=systems)
            _ask(common, shown)
        done = deployment.apply(
            target,
            say,
            recover=recover,
            only=systems,
            allow=allow,
            shown=shown,
            wait_seconds=wait,
            rollback=rollback,
        )
    if common.output is Output.JSON:
        print_json({"changes": [dataclasses.asdict(change) for change in done]})
    say(f"{len(done)} changes made" if done else "nothing to change")


def _systems(names: list[str]) -> list[System]:
    """Raises BadParameter: wrong usage."""
    unknown = [name for name in names if name not in deployment.SYSTEMS]
    if unknown:
        known = ", ".join(deployment.SYSTEMS)
        raise typer.BadParameter(f"{unknown[0]!r} is none of {known}", param_hint="--only")
    return [system for system in deployment.SYSTEMS if system in names]


def _saved(path: Path, recover: bool, only: list[System]) -> Plan:
    if recover or only:
        message = "--plan stands for itself: --recover and --only are in it"
        raise ConfigurationError(message, "give them to `outbox plan --save FILE`")
    return deployment.read_plan(path)


def _ask(common: Common, plan: Plan) -> None:
    """Show a person what would be done, and ask."""
    if plan.changes:
        show_table(list(plan.changes), to_person=True)
        say_notes(plan)
        hint = "look at `outbox plan`, then `outbox apply --yes`"
        confirm(common, f"Make {len(plan.changes)} changes?", hint=hint)
