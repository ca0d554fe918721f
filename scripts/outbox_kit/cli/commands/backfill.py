"""Implement `outbox backfill` and `outbox republish`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from outbox_events.errors import ConfigurationError
from outbox_kit import backfill as backfills
from outbox_kit.backfill.session import LOCK_TIMEOUT_S
from outbox_kit.cli.confirmation import MaxDeletionsOption, confirm_tombstones
from outbox_kit.cli.console import print_json, print_message, print_table
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.operations.preconditions import DEFAULT_LIMIT

LockTimeoutOption = Annotated[
    float, typer.Option("--lock-timeout", min=0.1, metavar="SECONDS", help="Wait at most this long for database locks.")
]
DeleteOption = Annotated[
    bool, typer.Option("--delete", help="Delete each outbox row in the transaction that inserts it.")
]


@common_options("output")
def backfill(
    common: CommonOptions,
    aggregates: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="AGGREGATE", help="Aggregate types. Default: all types that have `backfill` in the pipeline file."
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, max=100_000, metavar="ROWS", help="Number of rows per transaction.")
    ] = 500,
    rows_per_second: Annotated[
        float | None,
        typer.Option("--rows-per-second", min=0.1, metavar="ROWS", help="Limit the rate, in rows per second."),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start again with the first aggregate, even after a complete backfill.")
    ] = False,
    delete: DeleteOption = False,
    lock_timeout: LockTimeoutOption = LOCK_TIMEOUT_S,
    acknowledge: Annotated[
        bool,
        typer.Option(
            "--acknowledge", help="Record that the service has written every state of AGGREGATE again. Write no rows."
        ),
    ] = False,
) -> None:
    """Write the latest state of every aggregate to the outbox.

    Run the command again to resume it after an interruption.
    """
    options = backfills.BackfillOptions(batch_size, rows_per_second, restart, delete, lock_timeout)
    with common.deployment(writes=["postgres"]) as deployment:
        if acknowledge:
            backfills.acknowledge(deployment, aggregates or [], print_message)
            return
        results = backfills.backfill(deployment, aggregates or [], print_message, options)
    if common.output is Output.JSON:
        print_json({"aggregates": [dataclasses.asdict(result) for result in results]})
        return
    rows = [
        [entry.aggregate_type, str(entry.rows_now), str(entry.rows), str(entry.skipped), f"{entry.seconds:.1f}"]
        for entry in results
    ]
    print_table(["aggregate_type", "written now", "rows", "skipped", "seconds"], rows)


@common_options("output", "yes")
def republish(
    common: CommonOptions,
    aggregate: Annotated[str, typer.Argument(metavar="AGGREGATE", help="Aggregate type.")],
    keys: Annotated[
        list[str] | None, typer.Option("--key", metavar="AGGREGATE_ID", help="Republish this aggregate; repeatable.")
    ] = None,
    keys_from: Annotated[
        Path | None, typer.Option("--keys-from", metavar="FILE", help="Read keys from FILE, one per line; - for stdin.")
    ] = None,
    tombstones: Annotated[
        bool, typer.Option("--tombstones", help="Write a tombstone for each key that has no row in the source table.")
    ] = False,
    max_deletions: MaxDeletionsOption = DEFAULT_LIMIT,
    delete: DeleteOption = False,
    lock_timeout: LockTimeoutOption = LOCK_TIMEOUT_S,
) -> None:
    """Write the latest state of selected aggregates to the outbox.

    With --tombstones, the command asks for confirmation before it writes tombstones. Exit with code 1 if a key has no
    row in the source table, unless --tombstones is given.
    """
    selected_keys = [*(keys or []), *(_read_keys(keys_from) if keys_from else [])]
    if not selected_keys:
        raise typer.BadParameter("no key is given: use --key AGGREGATE_ID or --keys-from FILE")
    with common.deployment(writes=["postgres"]) as deployment:
        tombstone_keys = (
            confirm_tombstones(common, deployment, {aggregate: selected_keys}, max_deletions) if tombstones else None
        )
        row_count = backfills.republish(
            deployment,
            aggregate,
            selected_keys,
            print_message,
            tombstones=None if tombstone_keys is None else tombstone_keys.get(aggregate, ()),
            delete=delete,
            lock_seconds=lock_timeout,
        )
    if common.output is Output.JSON:
        print_json({"rows": row_count})


def _read_keys(path: Path) -> list[str]:
    """Return the non-empty lines of a file, or of stdin if the path is `-`. Spaces are part of a key."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read keys from {path}: {error.strerror if isinstance(error, OSError) else 'not UTF-8'}"
        raise ConfigurationError(message, "name a readable UTF-8 file with one key per line") from None
    # splitlines() would also split a key at U+2028.
    return [key for line in text.split("\n") if (key := line.removesuffix("\r"))]
