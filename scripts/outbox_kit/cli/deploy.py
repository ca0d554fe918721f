"""render, plan, apply."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from outbox_kit import deployment
from outbox_kit.changes import Change
from outbox_kit.cli.console import print_json, print_table, say, words
from outbox_kit.cli.options import Common, Output

CHANGES_PENDING = 3
HEADS = ["system", "object", "action", "change", "why"]


def render(context: typer.Context) -> None:
    """Print the connector config as JSON; no network. Placeholders of the worker stay as they are."""
    common: Common = context.obj
    name, config = deployment.render_files(common.pipeline, common.environment)
    print_json({"name": name, "config": config})


def plan(context: typer.Context) -> None:
    """Show what apply would change. Exit code 3 when there is something."""
    common: Common = context.obj
    with common.deployment() as target:
        changes = deployment.make_plan(target)
    _show(changes, common.output)
    if changes:
        raise typer.Exit(CHANGES_PENDING)


def apply(
    context: typer.Context,
    recover: Annotated[
        bool,
        typer.Option("--recover", help="Slot or database is another one: raise the epoch, take its position."),
    ] = False,
) -> None:
    """Bring database, topics, schemas and connector to what the files say."""
    common: Common = context.obj
    with common.deployment() as target:
        if not common.yes:
            changes = deployment.make_plan(target, recover=recover)
            if changes:
                _show_to_person(changes)
                _confirm(len(changes))
        done = deployment.apply(target, say, recover=recover)
    if common.output is Output.JSON:
        _show(done, common.output)
    say(f"{len(done)} changes made" if done else "nothing to change")


def _confirm(count: int) -> None:
    """Ask a person; never wait for an answer that cannot come."""
    if not sys.stdin.isatty():
        say("error: not a terminal, and --yes was not given\nhint:  look at `outbox plan`, then `outbox apply --yes`")
        raise typer.Exit(1)
    if not typer.confirm(f"Make {count} changes?", err=True):
        raise typer.Exit(1)


def _show_to_person(changes: list[Change]) -> None:
    print_table(HEADS, _rows(changes), console=words)


def _show(changes: list[Change], output: Output) -> None:
    if output is Output.JSON:
        print_json({"changes": [dataclasses.asdict(change) for change in changes]})
        return
    if not changes:
        say("no changes: everything is as the files say")
        return
    print_table(HEADS, _rows(changes))


def _rows(changes: list[Change]) -> list[list[str]]:
    return [[c.system, c.object, c.action, " → ".join(filter(None, (c.before, c.after))), c.why] for c in changes]
