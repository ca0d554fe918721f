"""outbox backfill, outbox republish."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from outbox_kit import backfill as backfilling
from outbox_kit.backfill.session import LOCK_SECONDS
from outbox_kit.cli.console import print_json, print_table, say
from outbox_kit.cli.options import Common, Output
from outbox_kit.errors import ConfigurationError

LockTimeout = Annotated[float, typer.Option("--lock-timeout", min=0.1, help="Seconds to wait for a lock.")]
Delete = Annotated[
    bool, typer.Option("--delete", help="Delete each outbox row in the transaction that inserts it (empty outbox).")
]


def backfill(
    context: typer.Context,
    aggregates: Annotated[list[str] | None, typer.Argument(help="Aggregate types; default: all that can be.")] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, max=100_000, help="Rows per transaction.")] = 500,
    rows_per_second: Annotated[
        float | None, typer.Option("--rows-per-second", min=0.1, help="At most so many. Default: no limit.")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="From the first aggregate, also when finished.")] = False,
    delete: Delete = False,
    lock_timeout: LockTimeout = LOCK_SECONDS,
) -> None:
    """Write the newest state of every aggregate into the outbox. Run it again to go on after an interruption."""
    common: Common = context.obj
    options = backfilling.Options(batch_size, rows_per_second, restart, delete, lock_timeout)
    with common.deployment() as target:
        done = backfilling.backfill(target, aggregates or [], say, options)
    if common.output is Output.JSON:
        print_json({"aggregates": [dataclasses.asdict(each) for each in done]})
        return
    rows = [[each.aggregate_type, str(each.rows), str(each.skipped), f"{each.seconds:.1f}"] for each in done]
    print_table(["aggregate", "rows", "skipped", "seconds"], rows)


def republish(
    context: typer.Context,
    aggregate: Annotated[str, typer.Argument(help="Aggregate type.")],
    keys: Annotated[list[str] | None, typer.Option("--key", help="An aggregate_id; may be repeated.")] = None,
    keys_from: Annotated[Path | None, typer.Option("--keys-from", help="File of keys, one a line; - is stdin.")] = None,
    tombstones: Annotated[
        bool, typer.Option("--tombstones", help="Write a tombstone for a key whose row is gone.")
    ] = False,
    delete: Delete = False,
    lock_timeout: LockTimeout = LOCK_SECONDS,
) -> None:
    """Write the newest state of chosen aggregates into the outbox again. Exit code 1 when a key has no row."""
    common: Common = context.obj
    chosen = [*(keys or []), *(_read_keys(keys_from) if keys_from else [])]
    if not chosen:
        raise typer.BadParameter("name the aggregates: --key KEY, or --keys-from FILE")
    with common.deployment() as target:
        rows = backfilling.republish(
            target, aggregate, chosen, say, tombstones=tombstones, delete=delete, lock_seconds=lock_timeout
        )
    if common.output is Output.JSON:
        print_json({"rows": rows})


def _read_keys(path: Path) -> list[str]:
    """The lines of a file that are not empty; a key is taken as it stands, spaces and all."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigurationError(f"keys file {path}: {reason}", "one key a line, UTF-8") from None
    # Not splitlines: a key may hold U+2028.
    return [key for line in text.split("\n") if (key := line.removesuffix("\r"))]
