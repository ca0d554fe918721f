"""outbox status, restart, pause, resume, stop, stuck, log-level."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Annotated

import typer

from outbox_kit import lsn
from outbox_kit.cli import exit_codes
from outbox_kit.cli.console import print_json, print_message, print_table
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.operations import lifecycle
from outbox_kit.operations import status as pipeline_status
from outbox_kit.operations import stuck as stuck_aggregates
from outbox_kit.operations.status import PipelineStatus
from outbox_kit.progress import plural

UNKNOWN = "unknown"


class Level(StrEnum):
    """Log levels of Kafka Connect."""

    OFF = "OFF"
    FATAL = "FATAL"
    ERROR = "ERROR"
    WARN = "WARN"
    INFO = "INFO"
    DEBUG = "DEBUG"
    TRACE = "TRACE"


@common_options("output")
def status(common: CommonOptions) -> None:
    """Show connector, slot, WAL positions and dead letters.

    Exit code 1 unless the connector and its tasks are RUNNING and the slot is usable.
    """
    with common.deployment() as target:
        report = pipeline_status.read_status(target)
    if common.output is Output.JSON:
        print_json(report.to_dict())
    else:
        print_table(["property", "value"], _rows(report))
        for problem in report.problems:
            print_message(f"problem: {problem}")
        for note in report.notes:
            print_message(f"note: {note}")
    if report.problems:
        raise typer.Exit(exit_codes.ERROR)


@common_options("output")
def restart(
    common: CommonOptions,
    failed: Annotated[bool, typer.Option("--failed", help="Restart only the connector or tasks that FAILED.")] = False,
) -> None:
    """Restart connector and tasks, and wait until they run.

    Refused where rows could be lost.
    """
    with common.deployment() as target:
        _print_status(common, lifecycle.restart(target, print_message, only_failed=failed))


@common_options("output")
def pause(common: CommonOptions) -> None:
    """Pause the connector.

    Its task stays assigned and keeps the replication slot active, but reads nothing.
    """
    with common.deployment() as target:
        _print_status(common, lifecycle.pause(target, print_message), lifecycle.declared_state_note(target, "paused"))


@common_options("output")
def resume(common: CommonOptions) -> None:
    """Resume a paused or stopped connector, and wait until it runs.

    Refused where rows could be lost.
    """
    with common.deployment() as target:
        _print_status(common, lifecycle.resume(target, print_message), lifecycle.declared_state_note(target, "running"))


@common_options("output")
def stop(common: CommonOptions) -> None:
    """Stop the connector.

    Its task ends and releases the replication slot; config and offsets are retained.
    """
    with common.deployment() as target:
        _print_status(common, lifecycle.stop(target, print_message), lifecycle.declared_state_note(target, "stopped"))


@common_options("output")
def stuck(
    common: CommonOptions,
    older_than: Annotated[
        float,
        typer.Option("--older-than", min=0.1, metavar="SECONDS", help="Ignore states that are younger than this."),
    ] = 60,
    resend: Annotated[bool, typer.Option("--resend", help="Write their latest state to the outbox again.")] = False,
) -> None:
    """List aggregates whose latest state did not reach its topic.

    An aggregate is listed when its latest state cannot be found there. Exit code 1 when there are such aggregates.
    """
    with common.deployment() as target:
        aggregates = stuck_aggregates.find(target, print_message, older_than=older_than)
        resent = stuck_aggregates.resend(target, aggregates, print_message) if resend and aggregates else 0
    if common.output is Output.JSON:
        print_json({"stuck": [dataclasses.asdict(entry) for entry in aggregates], "resent": resent})
    elif aggregates:
        columns = ["aggregate_type", "key", "problem", "event_id", "since"]
        rows = [[entry.aggregate_type, entry.key, entry.problem, entry.event_id, entry.since] for entry in aggregates]
        print_table(columns, rows)
    print_message(f"{plural(len(aggregates), 'stuck aggregate')}" + (f", {resent} sent again" if resend else ""))
    if resent < len(aggregates):
        raise typer.Exit(exit_codes.ERROR)


@common_options("output")
def log_level(
    common: CommonOptions,
    logger: Annotated[
        str | None,
        typer.Argument(metavar="LOGGER", help="Logger, for example io.debezium or root. Default: show all."),
    ] = None,
    level: Annotated[
        Level | None,
        typer.Argument(
            metavar="LEVEL",
            case_sensitive=False,
            help="OFF, FATAL, ERROR, WARN, INFO, DEBUG or TRACE: set it on every worker until it restarts.",
        ),
    ] = None,
) -> None:
    """Show the log levels of the Connect workers, or set one."""
    with common.deployment() as target:
        if logger and level:
            target.connect.set_log_level(logger, level.value)
            # Future tense: each worker learns of the change through a topic, a moment later.
            print_message(f"{logger} will log at {level.value} on every worker until it restarts")
            return
        loggers = target.connect.loggers()
    shown = {
        name: value for name, value in sorted(loggers.items()) if logger is None or f"{name}.".startswith(f"{logger}.")
    }
    if common.output is Output.JSON:
        print_json({"loggers": shown})
        return
    if logger is not None and logger not in shown:
        print_message(f"{logger} has no level of its own: it inherits its parent's")
    print_table(["logger", "level"], [list(entry) for entry in shown.items()])


def _print_status(common: CommonOptions, result: ConnectorStatus, note: str = "") -> None:
    if common.output is Output.JSON:
        print_json({"connector": result.connector, "tasks": list(result.tasks)})
    print_message(result.text)
    if note:
        print_message(f"note: {note}")


def _rows(report: PipelineStatus) -> list[list[str]]:
    tasks = [[f"task {number}", f"{task.state} on {task.worker}"] for number, task in enumerate(report.tasks)]
    epoch = report.actual_epoch if report.connect_responded else UNKNOWN
    return [
        ["connector", f"{report.connector}: {report.state or UNKNOWN} on {report.worker or 'no worker'}"],
        *(tasks or [["tasks", "none"]]),
        *([["root cause", report.cause]] if report.cause else []),
        ["slot", f"{report.slot_name}: {_slot_state(report)}"],
        ["lag", UNKNOWN if report.lag is None else f"{lsn.size(report.lag)} behind the server"],
        ["retained WAL", UNKNOWN if report.retained is None else lsn.size(report.retained)],
        ["LSN of connector", lsn.both(report.position) if report.connect_responded else UNKNOWN],
        ["LSN of slot", UNKNOWN if report.server is None else lsn.both(report.confirmed)],
        ["LSN of server", UNKNOWN if report.server is None else lsn.both(report.server)],
        ["dead letters", UNKNOWN if report.dead_letters is None else f"{report.dead_letters} not acknowledged"],
        ["source epoch", f"{epoch} (lock file: {report.locked_epoch or 'none'})"],
        ["config", report.fingerprint or ("none" if report.connect_responded else UNKNOWN)],
    ]


def _slot_state(report: PipelineStatus) -> str:
    if report.server is None:
        return UNKNOWN
    if report.slot is None:
        return "does not exist"
    return f"{'active' if report.slot.active else 'not active'}, WAL {report.slot.wal_status}"
