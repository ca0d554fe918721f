"""verify."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from outbox_kit import verification
from outbox_kit.cli.console import print_json, print_table, say
from outbox_kit.cli.options import Common, Output
from outbox_kit.deployment import Deployment
from outbox_kit.errors import ConfigurationError
from outbox_kit.rules import Check, Status
from outbox_kit.verification import Report


def verify(
    context: typer.Context,
    canary_timeout: Annotated[
        float, typer.Option("--canary-timeout", min=1, help="Seconds that the canary may take.")
    ] = 60,
    no_canary: Annotated[bool, typer.Option("--no-canary", help="Send no canary: nothing is written.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write the report there as JUnit XML.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write the report there as an HTML page.")] = None,
    every: Annotated[
        float | None,
        typer.Option("--every", min=1, help="Look again every so many seconds, print what changes; Ctrl-C ends it."),
    ] = None,
) -> None:
    """Check database, topics, registry and connector, and send a canary through. Exit code 1 when a check fails."""
    common: Common = context.obj
    seconds = None if no_canary else canary_timeout
    with common.deployment() as target:
        if every is not None:
            watch(target, seconds, every)
            return
        report = run(target, seconds)
    for path, text in ((junit, verification.to_junit), (html, verification.to_html)):
        if path is not None:
            write(path, text(report))
    show_checks(report, common.output)
    if report.failed:
        raise typer.Exit(1)


def run(target: Deployment, seconds: float | None) -> Report:
    """One run, with its time."""
    at = datetime.now(UTC)
    checks = verification.verify(target, say, canary_seconds=seconds)
    return Report(target.pipeline.name, target.environment.name, at, checks)


def watch(target: Deployment, seconds: float | None, every: float) -> None:
    """Run again and again, and print only what changes, until somebody interrupts."""
    drift, pause = verification.Drift(), threading.Event()
    try:
        while True:
            checks = verification.verify(target, lambda _: None, canary_seconds=seconds)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            for line in drift.changes(checks):
                typer.echo(f"{now} {line}")
            pause.wait(every)
    except KeyboardInterrupt:
        say("stopped")


def write(path: Path, text: str) -> None:
    """A report into a file. Raises ConfigurationError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {path}: {error.strerror}", "name a file in a folder that exists"
        ) from None


def show_checks(report: Report, output: Output) -> None:
    """The report: a table with remedies below it, or JSON."""
    if output is Output.JSON:
        print_json(verification.to_json(report.checks))
        return
    print_table(["check", "status", "seen"], [[check.id, check.status, check.seen] for check in report.checks])
    for check in report.checks:
        # What could not be looked at follows from something else, which is named.
        if check.status in (Status.WARN, Status.FAIL):
            say(_advice(check))
    say(report.words)


def _advice(check: Check) -> str:
    return f"{check.id}: expected {check.expected}; {check.remedy}"
