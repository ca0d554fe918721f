"""outbox verify."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from outbox_kit import verification
from outbox_kit.cli import exit_codes
from outbox_kit.cli.console import print_json, print_message, print_table, write_file
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.deployment import Deployment
from outbox_kit.rules import Status
from outbox_kit.verification import Report


@common_options("output")
def verify(
    common: CommonOptions,
    canary_timeout: Annotated[
        float, typer.Option("--canary-timeout", min=1, metavar="SECONDS", help="Wait at most this long for the canary.")
    ] = 60,
    no_canary: Annotated[bool, typer.Option("--no-canary", help="Send no canary event: nothing is written.")] = False,
    junit_file: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the report as JUnit XML.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as an HTML page.")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option("--every", min=1, metavar="SECONDS", help="Repeat at this interval; print only status changes."),
    ] = None,
) -> None:
    """Check the deployed systems, and send a canary event.

    Exit code 1 when a check fails.
    """
    canary_seconds = None if no_canary else canary_timeout
    with common.deployment() as deployment:
        if interval is not None:
            _watch(deployment, canary_seconds, interval)
            return
        started_at = datetime.now(UTC)
        checks = verification.verify(deployment, print_message, canary_seconds=canary_seconds)
        report = Report(deployment.pipeline.name, deployment.environment.name, started_at, checks)
    for path, to_text in ((junit_file, verification.to_junit), (html_file, verification.to_html)):
        if path is not None:
            write_file(path, to_text(report))
    _print_report(report, common.output)
    if report.failed:
        raise typer.Exit(exit_codes.ERROR)


def _watch(deployment: Deployment, canary_seconds: float | None, interval: float) -> None:
    """Run the checks every `interval` seconds and print status changes, until interrupted."""
    status_changes = verification.StatusChanges()
    try:
        while True:
            checks = verification.verify(deployment, lambda _: None, canary_seconds=canary_seconds)
            timestamp = datetime.now(UTC).isoformat(timespec="seconds")
            for line in status_changes.since_last_run(checks):
                typer.echo(f"{timestamp} {line}")
            time.sleep(interval)
    except KeyboardInterrupt:
        print_message("stopped")


def _print_report(report: Report, output: Output) -> None:
    """Print the checks as a table, followed by the remedies, or as JSON."""
    if output is Output.JSON:
        print_json(verification.to_json(report.checks))
        return
    print_table(["check", "status", "seen"], [[check.id, check.status, check.seen] for check in report.checks])
    for check in report.checks:
        # No remedy for UNKNOWN: the cause is usually a different check, which failed and has a remedy.
        if check.status in (Status.WARN, Status.FAIL):
            print_message(f"{check.id}: expected {check.expected}; {check.remedy}")
    print_message(report.summary)
