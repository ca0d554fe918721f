"""Implement `outbox adopt`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from outbox_kit import backfill as backfills
from outbox_kit.cli.confirmation import confirm
from outbox_kit.cli.console import print_json, print_message
from outbox_kit.cli.options import AllowOption, CommonOptions, Output, common_options


@common_options("output", "yes")
def adopt(
    common: CommonOptions,
    old_connector: Annotated[
        str,
        typer.Argument(
            metavar="CONNECTOR", help="Name of a running Debezium connector that outbox-kit did not create."
        ),
    ],
    allowed_objects: AllowOption = None,
) -> None:
    """Replace a connector that outbox-kit did not create.

    The pipeline's connector continues with the slot and offset of CONNECTOR, so no row is lost or sent twice.
    """
    with common.deployment(writes=["postgres", "kafka", "connect"], is_first=True) as deployment:
        name = deployment.pipeline.connector.name
        action = f"Replace connector {old_connector} with {name}, and delete {old_connector},"
        confirm(common, deployment, action, hint="add --yes to skip confirmation")
        result = backfills.adopt(deployment, old_connector, print_message, allow=allowed_objects or [])
    if common.output is Output.JSON:
        print_json(dataclasses.asdict(result))
    print_message(f"connector {result.connector} has replaced {result.old}")
