"""Implement `outbox status`, `restart`, `pause`, `resume` and `stop`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from outbox_events.contract import lsn
from outbox_events.text import format_age, format_size
from outbox_kit.cli import exit_codes
from outbox_kit.cli.console import completed, print_json, print_message, print_table
from outbox_kit.cli.options import CommonOptions, Output, SkipRowsOption, common_options
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.deployment import Deployment
from outbox_kit.operations import lifecycle
from outbox_kit.operations import status as pipeline_status
from outbox_kit.operations.status import PipelineStatus
from outbox_kit.results import Reporter

UNKNOWN = "unknown"
UNREACHABLE = "unknown, because the system does not respond (see the problems)"


@common_options("output")
def status(common: CommonOptions) -> None:
    """Show the state of every system, the connector, its slot and unacknowledged dead letters.

    Exit with code 1 unless every system responds, the connector and its tasks are RUNNING with the source epoch of the
    lock file, the slot is active and has its WAL, the publication exists, and the connector's offset is not beyond the
    WAL.
    """
    with common.deployment(reads=["postgres", "kafka", "connect"]) as deployment:
        report = pipeline_status.read_status(deployment)
    if common.output is Output.JSON:
        print_json({**report.to_dict(), "next_steps": [completed(step) for step in report.next_steps]})
    else:
        print_table(["property", "value"], _status_rows(report))
        kinds = {"problem": report.problems, "note": report.notes, "next step": report.next_steps}
        for kind, messages in kinds.items():
            for message in messages:
                print_message(f"{kind}: {message}")
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
    connect_responded, database_responded = report.connect_responded, report.server is not None
    epoch = report.actual_epoch if connect_responded else UNKNOWN
    state = f"{report.state or 'no status'}{f' on {report.worker}' if report.worker else ''}"
    letters = UNKNOWN if report.dead_letters is None else f"{report.dead_letters} not acknowledged"
    publication = "exists" if report.publication_exists else "does not exist"
    offset = lsn.describe(report.position) if connect_responded and report.offset_was_read else UNKNOWN
    return [
        ["pipeline", f"{report.pipeline} in environment {report.environment}, database {report.database}"],
        ["connector", f"{report.connector}: {state if connect_responded else UNREACHABLE}"],
        *(tasks or [["tasks", "none" if connect_responded else UNKNOWN]]),
        *([["root cause", report.cause]] if report.cause else []),
        ["slot", f"{report.slot_name}: {_slot_state(report)}"],
        ["publication", f"{report.publication_name}: {publication if database_responded else UNREACHABLE}"],
        ["lag", UNKNOWN if report.lag is None else f"{format_size(report.lag)} behind the server"],
        ["retained WAL", _retained(report)],
        ["newest record", _age(report, "record")],
        ["newest heartbeat", _age(report, "heartbeat")],
        ["dead letters", f"{letters}; newest on the topic: {_age(report, 'dead_letter')}"],
        ["LSN of connector", offset],
        ["LSN of slot", lsn.describe(report.confirmed) if database_responded else UNKNOWN],
        ["LSN of server", lsn.describe(report.server) if database_responded else UNKNOWN],
        ["registry", "responds" if report.registry_responded else UNREACHABLE],
        ["source epoch", f"{epoch} (lock file: {report.lock_file_epoch or 'none'})"],
        ["config", report.fingerprint or ("none" if connect_responded else UNKNOWN)],
    ]


def _age(report: PipelineStatus, kind: str) -> str:
    """Return the age of the newest record of a topic as text, without claiming that an unreadable topic is empty."""
    age = report.ages.get(kind)
    return f"{format_age(age)} ago" if age is not None else "none" if report.ages else UNKNOWN


def _retained(report: PipelineStatus) -> str:
    limit = "no limit" if report.retention_limit is None else format_size(report.retention_limit)
    return UNKNOWN if report.retained is None else f"{format_size(report.retained)} (max_slot_wal_keep_size: {limit})"


def _slot_state(report: PipelineStatus) -> str:
    if report.server is None:
        return UNREACHABLE
    if report.slot is None:
        return "does not exist"
    return f"{'active' if report.slot.active else 'not active'}, WAL {report.slot.wal_status}"
