"""Implement `outbox status`, `restart`, `pause`, `resume` and `stop`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from outbox_events.contract import lsn
from outbox_events.text import format_size
from outbox_kit.cli import exit_codes
from outbox_kit.cli.console import print_json, print_message, print_table
from outbox_kit.cli.options import CommonOptions, Output, SkipRowsOption, common_options
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.deployment import Deployment
from outbox_kit.operations import lifecycle
from outbox_kit.operations import status as pipeline_status
from outbox_kit.operations.status import PipelineStatus
from outbox_kit.results import Reporter

UNKNOWN = "unknown"


@common_options("output")
def status(common: CommonOptions) -> None:
    """Show the connector, its slot and unacknowledged dead letters.

    Exit with code 1 unless every system responds, the connector and its tasks are RUNNING, and the slot is active.
    """
    with common.deployment(reads=["postgres", "kafka", "connect"]) as deployment:
        report = pipeline_status.read_status(deployment)
    if common.output is Output.JSON:
        print_json(report.to_dict())
    else:
        print_table(["property", "value"], _status_rows(report))
        for problem in report.problems:
            print_message(f"problem: {problem}")
        for note in report.notes:
            print_message(f"note: {note}")
    if report.problems:
        raise typer.Exit(exit_codes.ERROR)


@common_options("output")
def restart(
    common: CommonOptions,
    failed: Annotated[bool, typer.Option("--failed", help="Restart only a FAILED connector or FAILED tasks.")] = False,
) -> None:
    """Restart the connector and its tasks, and wait for RUNNING.

    If starting the connector could lose rows, the command fails without changing anything.
    """
    with common.deployment(writes=["connect"]) as deployment:
        _print_status(common, lifecycle.restart(deployment, print_message, only_failed=failed))


@common_options("output")
def pause(common: CommonOptions) -> None:
    """Pause the connector.

    The task of a paused connector keeps the replication slot active, but does not send records to Kafka.
    """
    _change_state(common, lifecycle.pause, "paused")


@common_options("output")
def resume(
    common: CommonOptions,
    skip_rows: SkipRowsOption = False,
) -> None:
    """Resume a paused or stopped connector, and wait for RUNNING.

    If starting the connector could lose rows, the command fails without changing anything.
    """
    _change_state(common, partial(lifecycle.resume, skip_rows=skip_rows), "running")


@common_options("output")
def stop(common: CommonOptions) -> None:
    """Stop the connector.

    The connector's task ends and releases the replication slot. The connector's config and offsets are retained.
    """
    _change_state(common, lifecycle.stop, "stopped")


def _change_state(common: CommonOptions, change: Callable[[Deployment, Reporter], ConnectorStatus], state: str) -> None:
    with common.deployment(writes=["connect"]) as deployment:
        _print_status(common, change(deployment, print_message), lifecycle.declared_state_note(deployment, state))


def _print_status(common: CommonOptions, result: ConnectorStatus, note: str = "") -> None:
    if common.output is Output.JSON:
        print_json({"connector": result.connector_state, "tasks": list(result.task_states)})
    print_message(result.text)
    if note:
        print_message(f"note: {note}")


def _status_rows(report: PipelineStatus) -> list[list[str]]:
    tasks = [[f"task {number}", f"{task.state} on {task.worker}"] for number, task in enumerate(report.tasks)]
    epoch = report.actual_epoch if report.connect_responded else UNKNOWN
    return [
        ["connector", f"{report.connector}: {report.state or UNKNOWN} on {report.worker or 'no worker'}"],
        *(tasks or [["tasks", "none"]]),
        *([["root cause", report.cause]] if report.cause else []),
        ["slot", f"{report.slot_name}: {_slot_state(report)}"],
        ["lag", UNKNOWN if report.lag is None else f"{format_size(report.lag)} behind the server"],
        ["retained WAL", UNKNOWN if report.retained is None else format_size(report.retained)],
        ["LSN of connector", lsn.describe(report.position) if report.connect_responded else UNKNOWN],
        ["LSN of slot", UNKNOWN if report.server is None else lsn.describe(report.confirmed)],
        ["LSN of server", UNKNOWN if report.server is None else lsn.describe(report.server)],
        ["dead letters", UNKNOWN if report.dead_letters is None else f"{report.dead_letters} not acknowledged"],
        ["source epoch", f"{epoch} (lock file: {report.lock_file_epoch or 'none'})"],
        ["config", report.fingerprint or ("none" if report.connect_responded else UNKNOWN)],
    ]


def _slot_state(report: PipelineStatus) -> str:
    if report.server is None:
        return UNKNOWN
    if report.slot is None:
        return "does not exist"
    return f"{'active' if report.slot.active else 'not active'}, WAL {report.slot.wal_status}"
