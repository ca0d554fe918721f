"""outbox demo."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from outbox_kit.cli import exit_codes
from outbox_kit.cli.confirmation import confirm
from outbox_kit.cli.console import print_json, print_message, print_table
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.demo.run import Demo
from outbox_kit.stack import Stack

NEXT_STEPS = """The stack is running. Next steps:
  {outbox} stack status                   show addresses, and a DSN for psql
  {outbox} verify                         run every check and send a canary event
  {outbox} demo --keep                    write more transactions
  {outbox} stack down --purge             stop the stack and delete its data"""


@common_options("output", "yes")
def demo(
    common: CommonOptions,
    keep: Annotated[bool, typer.Option("--keep", help="Keep a stack that the demo started running.")] = False,
    transactions: Annotated[
        int, typer.Option("--transactions", min=1, metavar="NUMBER", help="Number of transactions to write.")
    ] = 3000,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="NUMBER", help="Seed of the random workload. Default: a random seed."),
    ] = None,
) -> None:
    """Run the worked example on the embedded stack.

    The demo writes outbox rows of connectors/library.yaml, materializes them into two targets, compares the targets
    with the source tables, and writes build/demo/result.json. A running stack is used and not stopped. Otherwise, the
    demo asks whether to delete the data of the stopped stack, starts an empty stack, and deletes it at the end. Exit
    with code 1 if a target or the number of dead letters is wrong.
    """
    stack = Stack(common.project_folder)
    if stack.state() is None and stack.has_data:
        question = f"Delete the data of the stopped stack in {stack.layout.home}"
        confirm(common, None, question, hint="run `outbox stack up` to keep the data, or add --yes")
    pipeline_file = common.project_folder / "connectors" / "library.yaml"
    demo_run = Demo(pipeline_file, transactions, secrets.randbelow(2**31) if seed is None else seed, print_message)
    report = demo_run.run(keep=keep)
    if common.output is Output.JSON:
        print_json(report.to_dict())
    else:
        for table in report.tables():
            print_table(table.headings, table.rows, title=table.title)
    for reason in report.mismatches:
        print_message(f"mismatch: {reason}")
    print_message(f"match: {'true' if report.match else 'false'} (build/demo/result.json)")
    if keep:
        for line in NEXT_STEPS.format(outbox=".venv/bin/outbox").splitlines():
            print_message(line)
    if not report.match:
        raise typer.Exit(exit_codes.ERROR)
