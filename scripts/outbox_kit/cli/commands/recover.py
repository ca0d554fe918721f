"""outbox recover."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from outbox_events.contract import lsn
from outbox_kit import recovery
from outbox_kit.cli import exit_codes
from outbox_kit.cli.confirmation import MaxDeletionsOption, confirm, parse_limit
from outbox_kit.cli.console import print_json, print_message
from outbox_kit.cli.options import AllowOption, CommonOptions, Output, SlotWaitOption, common_options
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.identity import (
    CLUSTERS,
    NAME_KEYS,
    refuse_foreign_database,
    refuse_foreign_systems,
    refuse_other_connector_address,
    refuse_unapplied_names,
)
from outbox_kit.operations.preconditions import DEFAULT_LIMIT
from outbox_kit.recovery import Cause, Recovery
from outbox_kit.results.repair_commands import APPLY_RECOVER_HINT


@common_options("output", "yes")
def recover(
    common: CommonOptions,
    max_deletions: MaxDeletionsOption = DEFAULT_LIMIT,
    wait_seconds: SlotWaitOption = 120,
    new_database: Annotated[
        bool,
        typer.Option("--new-database", help="Continue with another database than `outbox apply` recorded."),
    ] = False,
    allowed_objects: AllowOption = None,
) -> None:
    """Recover from a lost slot or a replaced database.

    The command prints the cause and asks for confirmation. It creates the slot, increases the source epoch, sends the
    rows whose delivery no record proves, starts the connector, and sends the states of all types that have `backfill`.
    It changes nothing if the connector can continue. Exit with code 1 if events can be lost.
    """
    limit = parse_limit(max_deletions)
    with common.deployment() as deployment:
        # An address of a database that was promoted or replaced can be new.
        refuse_foreign_systems(
            deployment, print_message, needs=CLUSTERS, compared=CLUSTERS, apply_hint=APPLY_RECOVER_HINT
        )
        refuse_unapplied_names(deployment, deployment.lock(), NAME_KEYS, APPLY_RECOVER_HINT)
        refuse_foreign_database(deployment, is_new=new_database)
        refuse_other_connector_address(deployment)
        cause = recovery.diagnose(deployment)
        if cause is not None:
            print_message(f"{cause.name}: {cause.text}")
            confirm(common, deployment, _action(deployment, cause), hint="check the cause above, then add --yes")
        result = Recovery(None, unproven=recovery.unfinished_steps(deployment))
        if cause is not None:
            result = recovery.recover(
                deployment,
                print_message,
                limit=limit,
                wait_seconds=wait_seconds,
                allow=allowed_objects or [],
                command=f"outbox recover{' --new-database' if new_database else ''}",
            )
    _print_result(result, common.output)
    if result.unproven:
        raise typer.Exit(exit_codes.ERROR)


def _action(deployment: Deployment, cause: Cause) -> str:
    slot = deployment.pipeline.source.slot
    drop = f"drop slot {slot}, " if cause.drops_slot else ""
    return f"Stop the connector, {drop}continue at slot {slot} with a new source epoch, and send events again"


def _print_result(result: Recovery, output: Output) -> None:
    if output is Output.JSON:
        print_json(
            {
                "cause": dataclasses.asdict(result.cause) if result.cause else None,
                "unread": {"from": lsn.as_json(result.unread_from), "to": lsn.as_json(result.unread_to)},
                "resent": result.resent,
                "unrouted": result.unrouted,
                "unproven": result.unproven,
            }
        )
    for line in result.lines:
        print_message(line)
    if result.cause is None:
        print_message("the connector can continue at its slot; `outbox verify` finds lost rows")
    elif not result.unproven:
        print_message("recovered: no event is lost")
