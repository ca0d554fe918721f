"""Implement `outbox doctor`."""

from __future__ import annotations

import dataclasses

import typer

from outbox_kit.cli import exit_codes
from outbox_kit.cli.console import print_json, print_message, print_table, print_text
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.operations.doctor import Diagnosis, diagnose


@common_options("output")
def doctor(common: CommonOptions) -> None:
    """Check addresses, logins and database privileges, and print missing grants.

    The command changes nothing. Exit with code 1 if a system does not respond, or if a privilege or a setting in
    PostgreSQL is missing. The output then contains the SQL that adds what is missing.
    """
    with common.deployment() as deployment:
        diagnosis = diagnose(deployment)
    if common.output is Output.JSON:
        print_json(dataclasses.asdict(diagnosis))
    else:
        _print_diagnosis(diagnosis)
    if not diagnosis.is_healthy:
        raise typer.Exit(exit_codes.ERROR)


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    rows = [[result.system, result.address, result.error or "responds"] for result in diagnosis.systems]
    print_table(["system", "address", "result"], rows)
    if not diagnosis.missing:
        return
    rows = [[item.role, item.privilege, item.needed_by] for item in diagnosis.missing]
    print_table(["role", "missing in PostgreSQL", "needed by"], rows)
    print_message("run this SQL as a superuser, or as the owner of the object:")
    for item in diagnosis.missing:
        print_text(f"{item.statement};")
