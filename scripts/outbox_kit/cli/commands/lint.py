"""lint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from outbox_kit import linting
from outbox_kit.cli.console import print_json, print_table, say
from outbox_kit.cli.options import Common, Output
from outbox_kit.connect.client import ConnectClient
from outbox_kit.pipeline import load_environment
from outbox_kit.rules import Check, Status


def lint(
    context: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Pipeline files, judged together. Default: the one of -p.")
    ] = None,
    connect: Annotated[
        bool, typer.Option("--connect", help="Ask a Connect worker which keys its plugins know.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="A warning fails, too.")] = False,
) -> None:
    """Judge pipeline files by every rule that needs no network and no secret. Exit code 1 when one is broken."""
    common: Common = context.obj
    judged = files or [common.pipeline]
    with _further_rules(common, judged[0], connect) as further:
        checks = linting.lint_files(judged, common.environment, common.overrides, further)
    _show(checks, common.output)
    bad = {Status.FAIL, Status.WARN} if strict else {Status.FAIL}
    if any(check.status in bad for check in checks):
        raise typer.Exit(1)


@contextmanager
def _further_rules(common: Common, pipeline_file: Path, connect: bool) -> Iterator[list[linting.Rule]]:
    """Rules that ask a worker."""
    if not connect:
        yield []
        return
    found = load_environment(common.environment, pipeline_file, common.overrides, needs=("connect",))
    with closing(ConnectClient(found.connect, found.connect.addresses)) as client:
        yield [linting.unknown_keys_rule(cache(client.plugin_config_keys))]


def _show(checks: list[Check], output: Output) -> None:
    """What is wrong, with remedies below it, and how many rules hold; in JSON, those too."""
    if output is Output.JSON:
        print_json({"checks": [dataclasses.asdict(check) for check in checks]})
        return
    broken = [check for check in checks if check.status is not Status.PASS]
    if broken:
        print_table(["check", "status", "seen"], [[check.id, check.status, check.seen] for check in broken])
    for words in dict.fromkeys(f"{check.id}: expected {check.expected}; {check.remedy}" for check in broken):
        say(words)
    findings = f", {len(broken)} finding{'s' if len(broken) > 1 else ''}" if broken else ""
    say(f"{len(checks) - len(broken)} rules hold{findings}")
