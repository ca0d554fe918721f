"""Implement `outbox offsets`, with the subcommands show, export and reset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from outbox_events.contract import lsn
from outbox_kit.cli.confirmation import ConfirmOption, confirm_names, require_names
from outbox_kit.cli.console import print_json, print_message, print_table
from outbox_kit.cli.options import CommonOptions, Output, SkipRowsOption, common_options
from outbox_kit.operations import offsets

app = typer.Typer(help="Show, export and reset the connector's offset.", no_args_is_help=True)


@app.command()
@common_options("output")
def show(common: CommonOptions) -> None:
    """Compare the WAL positions of the connector, slot and server."""
    with common.deployment(reads=["postgres", "connect"]) as deployment:
        positions = offsets.show(deployment)
    if common.output is Output.JSON:
        print_json(positions.to_dict())
        return
    rows = [
        ["connector", lsn.describe(positions.connector)],
        ["slot, confirmed_flush_lsn", lsn.describe(positions.confirmed)],
        ["slot, restart_lsn", lsn.describe(positions.restart)],
        ["server", lsn.describe(positions.server)],
    ]
    print_table(["position", "lsn"], rows)
    for message in positions.explanations():
        print_message(message)


@app.command()
@common_options()
def export(
    common: CommonOptions, file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON file to create.")]
) -> None:
    """Write the connector's offset and the slot's LSNs to a file.

    Only the file's owner can read the file.
    """
    with common.deployment(reads=["postgres", "connect"]) as deployment:
        offsets.export(deployment, file)
    print_message(f"wrote the offset to {file}")


@app.command()
@common_options("output")
def reset(
    common: CommonOptions,
    to: Annotated[  # noqa: ARG001 - there is only one value
        Literal["slot"],
        typer.Option("--to", help="Position to which to reset the offset: slot is the slot's confirmed_flush_lsn."),
    ] = "slot",
    backup_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Reset to the offset in a file that `export` wrote.")
    ] = None,
    skip_rows: SkipRowsOption = False,
    confirmed_text: ConfirmOption = None,
) -> None:
    """Back up the connector's offset, and set a new one.

    The connector is stopped during the reset. The command first prints whether rows will be sent again or lost. It then
    asks for the names of the pipeline and the environment.
    """
    with common.deployment(writes=["postgres", "connect"]) as deployment:
        if confirmed_text is not None:
            require_names(deployment, confirmed_text)
        offset_change = offsets.preview(deployment, backup_file, skip=skip_rows)
        print_message(
            f"offset of the connector: {lsn.describe(offset_change.before)}; "
            f"after the reset: {lsn.describe(offset_change.after)}"
        )
        print_message(f"effect: {offset_change.describe(None)}")
        if confirmed_text is None:
            action = "Stop the connector and reset its offset"
            confirm_names(deployment, action, hint="check the effect printed above")
        result = offsets.reset(deployment, backup_file, print_message, skip=skip_rows)
    if common.output is Output.JSON:
        print_json(
            {
                "backup": str(result.backup),
                "before": lsn.as_json(result.before),
                "after": lsn.as_json(result.after),
                "rows": result.rows,
                "resumed": result.resumed,
            }
        )
