"""outbox adopt."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from outbox_kit import backfill as backfills
from outbox_kit.cli.console import print_json, print_message
from outbox_kit.cli.options import CommonOptions, Output, common_options


@common_options("output", "yes")
def adopt(
    common: CommonOptions,
    old_connector: Annotated[
        str,
        typer.Argument(
            metavar="CONNECTOR", help="Name of a running Debezium connector that outbox-kit did not create."
        ),
    ],
) -> None:
    """Replace another connector: take over its slot and offset.

    The old connector is deleted. No row is lost and none is sent twice.
    """
    with common.deployment() as target:
        question = f"Stop and delete connector {old_connector}, and continue with {target.pipeline.connector.name}?"
        common.confirm(question, hint="add --yes to skip confirmation")
        result = backfills.adopt(target, old_connector, print_message)
    if common.output is Output.JSON:
        print_json(dataclasses.asdict(result))
    print_message(f"connector {result.connector} has replaced {result.old}")
