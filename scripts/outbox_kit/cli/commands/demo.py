"""demo."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from outbox_kit.cli.console import print_json, print_table, say
from outbox_kit.cli.options import Common, Output

NEXT = """The stack is up. Three things to try next:
  {outbox} stack status                   addresses, and a DSN for psql
  {outbox} verify                         every check, and a canary through the whole path
  {outbox} demo --keep                    more changes on top of these
and when you are done: {outbox} stack down --purge"""


def demo(
    context: typer.Context,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack up afterwards.")] = False,
    transactions: Annotated[int, typer.Option("--transactions", min=1, help="Size of the workload.")] = 3000,
    seed: Annotated[int | None, typer.Option("--seed", help="Repeats a workload.")] = None,
) -> None:
    """Show the main job on the embedded stack: from an outbox row to a table, and the proof.

    Exit code 1 unless every row of both targets equals the source. Details: build/demo/result.json.
    """
    from outbox_kit.demo.run import Demo  # noqa: PLC0415 - no other command pays for its import

    common: Common = context.obj
    run = Demo(common.pipeline, transactions, secrets.randbelow(2**31) if seed is None else seed, say)
    report = run.run(keep=keep)
    if common.output is Output.JSON:
        print_json(report.to_dict())
    else:
        for table in report.tables():
            print_table(table.heads, table.rows, title=table.title)
    for reason in report.mismatches:
        say(f"does not match: {reason}")
    say(f"match: {'true' if report.match else 'false'} (build/demo/result.json)")
    if keep:
        say(NEXT.format(outbox=".venv/bin/outbox"))
    if not report.match:
        raise typer.Exit(1)
