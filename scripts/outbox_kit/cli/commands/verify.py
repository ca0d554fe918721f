"""Implement `outbox verify`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from outbox_common.error_text import one_line
from outbox_kit import verification
from outbox_kit.cli import exit_codes
from outbox_kit.cli.checks_output import print_checks
from outbox_kit.cli.console import completed_checks, print_json, print_message, print_text, write_file
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.deployment import Deployment
from outbox_kit.operations.state_comparison import StateComparison
from outbox_kit.results import Reporter, silent
from outbox_kit.verification import Report

VerboseOption = Annotated[
    bool, typer.Option("-v", "--verbose", help="List every check, not only those that did not pass.")
]


@common_options("output")
def verify(
    common: CommonOptions,
    canary_timeout: Annotated[
        float, typer.Option("--canary-timeout", min=1, metavar="SECONDS", help="Wait at most this long for the canary.")
    ] = 60,
    no_canary: Annotated[bool, typer.Option("--no-canary", help="Do not send a canary event. Write nothing.")] = False,
    junit_file: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the report as JUnit XML.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as an HTML page.")
    ] = None,
    states: Annotated[
        bool, typer.Option("--states", help="Check that the topics contain the newest state of every aggregate.")
    ] = False,
    states_timeout: Annotated[
        float,
        typer.Option("--states-timeout", min=1, metavar="SECONDS", help="Maximum duration of the comparison per run."),
    ] = 300,
    max_records: Annotated[
        int,
        typer.Option(
            "--max-records", min=1, metavar="NUMBER", help="With --states, read at most this many records per topic."
        ),
    ] = 5_000_000,
    interval: Annotated[
        float | None,
        typer.Option(
            "--every",
            min=1,
            metavar="SECONDS",
            help="Repeat at this interval. Print status changes, or with --output json, one line per run.",
        ),
    ] = None,
    verbose: VerboseOption = False,
) -> None:
    """Check the deployed systems, and send a canary event.

    With --states, also check that the topics contain the newest state of every aggregate. Free disk space, quotas and
    the clocks of the brokers are not checked (docs/verify.md). Exit with code 1 if a check fails.
    """
    canary_seconds = None if no_canary else canary_timeout
    with common.deployment(shows_waiting=interval is None) as deployment:
        # All runs of --every share one comparison, because the comparison keeps the records that it has read.
        comparison = (
            verification.comparison_of(deployment, seconds=states_timeout, max_records=max_records) if states else None
        )
        run = partial(_run, deployment, canary_seconds, comparison, junit_file, html_file)
        if interval is not None:
            _watch(partial(run, silent), common.output, interval)
            return
        report = run(print_message)
    if common.output is Output.JSON:
        print_json(verification.to_json(report))
    else:
        print_checks(report.checks, report.summary, verbose=verbose)
    if report.failed:
        raise typer.Exit(exit_codes.ERROR)


def _run(
    deployment: Deployment,
    canary_seconds: float | None,
    comparison: StateComparison | None,
    junit_file: Path | None,
    html_file: Path | None,
    progress: Reporter,
) -> Report:
    """Run the checks, write the report to the given files, and return the report."""
    started_at = datetime.now(UTC)
    checks = completed_checks(
        verification.verify(deployment, progress, canary_seconds=canary_seconds, states=comparison)
    )
    report = Report(deployment.pipeline.name, deployment.environment.name, started_at, checks)
    for path, to_text in ((junit_file, verification.to_junit), (html_file, verification.to_html)):
        if path is not None:
            write_file(path, to_text(report))
    return report


def _watch(run: Callable[[], Report], output: Output, interval: float) -> None:
    """Run the checks every `interval` seconds, until interrupted.

    Print the status changes. With --output json, print the report of each run as one line instead.
    """
    status_changes = verification.StatusChanges()
    try:
        while True:
            report = run()
            if output is Output.JSON:
                typer.echo(json.dumps(verification.to_json(report)))
            else:
                timestamp = datetime.now(UTC).isoformat(timespec="seconds")
                for line in status_changes.since_last_run(report.checks):
                    print_text(one_line(f"{timestamp} {line}"))
            time.sleep(interval)
    except KeyboardInterrupt:
        print_message("stopped")
