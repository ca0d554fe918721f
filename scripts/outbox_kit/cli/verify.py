"""verify."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from outbox_kit import verification
from outbox_kit.checking import Check, Status
from outbox_kit.cli.console import print_json, print_table, say
from outbox_kit.cli.options import Common, Output


def verify(
    context: typer.Context,
    canary_timeout: Annotated[
        float, typer.Option("--canary-timeout", min=1, help="Seconds that the canary may take.")
    ] = 60,
) -> None:
    """Check database, topics, registry and connector, and send a canary through. Exit code 1 when a check fails."""
    common: Common = context.obj
    with common.deployment() as target:
        checks = verification.verify(target, say, canary_seconds=canary_timeout)
    show_checks(checks, common.output)
    if any(check.status is Status.FAIL for check in checks):
        raise typer.Exit(1)


def show_checks(checks: list[Check], output: Output) -> None:
    """The report: a table with remedies below it, or JSON."""
    if output is Output.JSON:
        print_json({"checks": [dataclasses.asdict(check) for check in checks]})
        return
    print_table(["check", "status", "seen"], [[check.id, check.status, check.seen] for check in checks])
    for check in checks:
        if check.status is not Status.PASS:
            say(f"{check.id}: expected {check.expected}; {check.remedy}")
