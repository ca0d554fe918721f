"""status, restart, pause, resume, stop."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox_kit import lsn
from outbox_kit.cli.console import print_json, print_table, say
from outbox_kit.cli.options import Common, Output
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.operations import lifecycle
from outbox_kit.operations import status as pipeline_status
from outbox_kit.operations.status import PipelineStatus

UNKNOWN = "unknown"


def status(context: typer.Context) -> None:
    """Show connector, slot, positions and dead letters on one screen. Exit code 1 unless all is RUNNING."""
    common: Common = context.obj
    with common.deployment() as target:
        found = pipeline_status.read_status(target)
    if common.output is Output.JSON:
        print_json(found.to_dict())
    else:
        print_table(["what", "now"], _rows(found))
        for problem in found.problems:
            say(f"not well: {problem}")
        for note in found.notes:
            say(f"note: {note}")
    if found.problems:
        raise typer.Exit(1)


def restart(
    context: typer.Context,
    failed: Annotated[bool, typer.Option("--failed", help="Only what FAILED of connector and tasks.")] = False,
) -> None:
    """Restart connector and tasks and wait until they run; refused where rows could be lost."""
    common: Common = context.obj
    with common.deployment() as target:
        _show(common, lifecycle.restart(target, say, only_failed=failed))


def pause(context: typer.Context) -> None:
    """Pause the connector: its task stays and keeps the slot, but reads nothing."""
    common: Common = context.obj
    with common.deployment() as target:
        _show(common, lifecycle.pause(target, say), lifecycle.declared_otherwise(target, "paused"))


def resume(context: typer.Context) -> None:
    """Start a paused or stopped connector and wait until it runs; refused where rows could be lost."""
    common: Common = context.obj
    with common.deployment() as target:
        _show(common, lifecycle.resume(target, say), lifecycle.declared_otherwise(target, "running"))


def stop(context: typer.Context) -> None:
    """Stop the connector: its task ends and gives the slot up; config and offsets stay."""
    common: Common = context.obj
    with common.deployment() as target:
        _show(common, lifecycle.stop(target, say), lifecycle.declared_otherwise(target, "stopped"))


def _show(common: Common, seen: ConnectorStatus, note: str = "") -> None:
    if common.output is Output.JSON:
        print_json({"connector": seen.connector, "tasks": list(seen.tasks)})
    say(seen.words)
    if note:
        say(f"note: {note}")


def _rows(found: PipelineStatus) -> list[list[str]]:
    row = found.slot_row
    tasks = [[f"task {number}", f"{task.state} on {task.worker}"] for number, task in enumerate(found.tasks)] or [
        ["tasks", "none"]
    ]
    return [
        ["connector", f"{found.connector}: {found.state or UNKNOWN} on {found.worker or 'no worker'}"],
        *tasks,
        *([["root cause", found.cause]] if found.cause else []),
        ["slot", f"{found.slot}: {_slot(found)}"],
        ["lag", UNKNOWN if found.lag is None else f"{lsn.size(found.lag)} behind the server"],
        ["retained WAL", UNKNOWN if found.retained is None else lsn.size(found.retained)],
        ["position of connector", lsn.both(found.position) if found.asked else UNKNOWN],
        ["position of slot", lsn.both(found.confirmed) if row else UNKNOWN],
        ["position of server", lsn.both(row.get("server")) if row else UNKNOWN],
        ["dead letters", UNKNOWN if found.dead_letters is None else f"{found.dead_letters} not acknowledged"],
        ["source epoch", f"{found.live_epoch if found.asked else UNKNOWN} (lock file: {found.locked_epoch or 'none'})"],
        ["config", found.fingerprint or ("none" if found.asked else UNKNOWN)],
    ]


def _slot(found: PipelineStatus) -> str:
    if not found.slot_row:
        return UNKNOWN
    if found.confirmed is None:
        return "does not exist"
    return f"{'active' if found.slot_row['active'] else 'not active'}, WAL {found.slot_row['wal_status']}"
