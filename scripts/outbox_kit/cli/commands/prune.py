"""outbox prune."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated

import typer

from outbox_events.text import plural, shortened_list
from outbox_kit.cli.confirmation import ConfirmOption, confirm_names, require_names
from outbox_kit.cli.console import print_json, print_message, print_table
from outbox_kit.cli.options import CommonOptions, Output, SlotWaitOption, common_options
from outbox_kit.deployment import Deployment
from outbox_kit.pruning import prune as pruning
from outbox_kit.pruning.prune import PrunedType, PruneOptions
from outbox_kit.pruning.prune_partitions import PrunedPartition, prune_partitions

AGE_UNITS = {"s": 1, "m": 60, "h": 60 * 60, "d": 24 * 60 * 60}
AGE_PATTERN = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
COUNTS = ("newest", "young", "unproven", "following", "changed")


@common_options("output")
def prune(
    common: CommonOptions,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Retain rows younger than AGE, such as 15m, 12h or 7d.")
    ] = "3d",
    batch_size: Annotated[
        int, typer.Option("--batch", min=1, max=100_000, metavar="ROWS", help="Number of rows per transaction.")
    ] = 10_000,
    delete_newest: Annotated[
        bool, typer.Option("--all", help="Also delete the newest row of each aggregate. See docs/prune.md.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows without deleting them.")] = False,
    partitions: Annotated[
        bool,
        typer.Option("--partitions", help="Drop partitions whose rows would all be deleted. Delete no other rows."),
    ] = False,
    wait_seconds: SlotWaitOption = 60,
    confirmed_text: ConfirmOption = None,
) -> None:
    """Delete outbox rows whose delivery to their topic is proven.

    The command asks for the names of the pipeline and the environment. It retains rows whose delivery is not proven,
    and the newest row of each aggregate unless the aggregate was deleted.
    """
    options = PruneOptions(_parse_age(older_than), batch_size, wait_seconds, not delete_newest, dry_run)
    with common.deployment(writes=["postgres", "kafka"]) as deployment:
        if confirmed_text is not None:
            require_names(deployment, confirmed_text)
        elif not dry_run:
            _confirm(deployment, older_than, delete_newest=delete_newest, partitions=partitions)
        if partitions:
            _print_partitions(prune_partitions(deployment, print_message, options), common.output, dry_run=dry_run)
            return
        types = pruning.prune(deployment, print_message, options)
    if common.output is Output.JSON:
        print_json({"dry_run": dry_run, "aggregates": [dataclasses.asdict(entry) for entry in types]})
    elif types:
        columns = ["aggregate_type", "deletable" if dry_run else "deleted", *COUNTS]
        print_table(columns, [_table_row(entry) for entry in types])
    _print_summary(types, dry_run=dry_run)


def _confirm(deployment: Deployment, older_than: str, *, delete_newest: bool, partitions: bool) -> None:
    verb = "Drop partitions that contain only" if partitions else "Delete"
    rows = "delivered rows" if delete_newest else "delivered rows, except the newest of each aggregate,"
    action = f"{verb} {rows} older than {older_than} from {deployment.pipeline.source.table}"
    confirm_names(deployment, action, hint="check the counts with --dry-run")


def _parse_age(text: str) -> float:
    """Convert an age to seconds, for example 604800 for 7d."""
    match = AGE_PATTERN.fullmatch(text)
    if match is None:
        message = f"found {text!r}; must be a number with a unit: 30s, 15m, 12h or 7d"
        raise typer.BadParameter(message, param_hint="--older-than")
    return float(match[1]) * AGE_UNITS[match[2]]


def _print_partitions(partitions: list[PrunedPartition], output: Output, *, dry_run: bool) -> None:
    dropped = [entry for entry in partitions if not entry.reason]
    if output is Output.JSON:
        print_json({"dry_run": dry_run, "partitions": [dataclasses.asdict(entry) for entry in partitions]})
    else:
        rows = [[entry.partition, str(entry.rows), entry.reason or "none"] for entry in partitions]
        print_table(["partition", "rows", "remains because"], rows)
    text = f"{plural(len(dropped), 'partition')} with {plural(sum(entry.rows for entry in dropped), 'row')}"
    print_message(f"{text} would be dropped" if dry_run else f"{text} dropped")


def _table_row(entry: PrunedType) -> list[str]:
    return [entry.aggregate_type, str(entry.deleted), *(str(getattr(entry, name)) for name in COUNTS)]


def _print_summary(types: list[PrunedType], *, dry_run: bool) -> None:
    for entry in types:
        if entry.unproven:
            keys = shortened_list(entry.unproven_keys, len(entry.unproven_keys))
            print_message(
                f"{plural(entry.unproven, 'row')} of {entry.aggregate_type} retained, because no record proves the "
                f"delivery (keys: {keys}): run `outbox stuck`"
            )
    rows = plural(sum(entry.deleted for entry in types), "row")
    print_message(f"{rows} would be deleted" if dry_run else f"{rows} deleted")
