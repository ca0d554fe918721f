"""outbox lint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from outbox_events.text import plural
from outbox_kit import linting
from outbox_kit.cli import exit_codes
from outbox_kit.cli.checks_output import print_checks
from outbox_kit.cli.console import print_json
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.connect.client import ConnectClient
from outbox_kit.pipeline import load_environment
from outbox_kit.results.checks import Check, Status


@common_options("output")
def lint(
    common: CommonOptions,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Pipeline files to check together. Default: the --pipeline file."),
    ] = None,
    with_connect: Annotated[
        bool, typer.Option("--connect", help="Also check that a plugin on the worker defines each config key.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
) -> None:
    """Check pipeline files. Only --connect accesses the network.

    Exit with code 1 if a rule with severity error is violated. With --strict, exit with code 1 if any rule is violated.
    """
    pipeline_files = files or [common.pipeline]
    with _connect_rules(common, pipeline_files[0], with_connect) as connect_rules:
        checks = linting.lint_files(pipeline_files, common.environment, common.overrides, connect_rules)
    _print_checks(checks, common.output)
    failing_statuses = {Status.FAIL, Status.WARN} if strict else {Status.FAIL}
    if any(check.status in failing_statuses for check in checks):
        raise typer.Exit(exit_codes.ERROR)


@contextmanager
def _connect_rules(common: CommonOptions, pipeline_file: Path, enabled: bool) -> Iterator[list[linting.LintRule]]:
    """Yield the rules that query a Connect worker, or an empty list if these rules are not enabled."""
    if not enabled:
        yield []
        return
    environment = load_environment(common.environment, pipeline_file, common.overrides, needs=("connect",))
    with closing(ConnectClient(environment.connect, environment.connect.addresses)) as client:
        yield [linting.unknown_keys_rule(cache(client.plugin_config_keys))]


def _print_checks(checks: list[Check], output: Output) -> None:
    """Print the failed checks, their remedies and the number of passed checks, or print every check as JSON."""
    if output is Output.JSON:
        print_json({"checks": [dataclasses.asdict(check) for check in checks]})
        return
    violations = [check for check in checks if check.status is not Status.PASS]
    not_passed = f", {len(violations)} did not pass" if violations else ""
    print_checks(violations, f"{plural(len(checks) - len(violations), 'check')} passed{not_passed}")
