"""Implement `outbox stack`, with the subcommands up, down, status and logs."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox_kit.cli import exit_codes
from outbox_kit.cli.console import print_json, print_message, print_table, print_text
from outbox_kit.cli.options import CommonOptions, Output, common_options
from outbox_kit.stack import Stack

app = typer.Typer(help="Start, stop and inspect the embedded stack.", no_args_is_help=True)


@app.command()
@common_options("output")
def up(
    common: CommonOptions,
    ports: Annotated[
        list[str] | None,
        typer.Option("--port", metavar="SERVICE=PORT", help="Set the port of a service, as in kafka=9092; repeatable."),
    ] = None,
) -> None:
    """Start the stack and wait until every service is ready. Print the addresses.

    A service for which --port is not given uses a free port. Without --port, the command changes nothing if every
    service is running.
    """
    stack = Stack(common.project_folder)
    state = stack.state()
    if state is not None and not ports and all(process.state in ("running", "starting") for process in stack.status()):
        print_message("the stack is already running")
    else:
        state = stack.up(print_message, ports=_parse_ports(ports or []))
    _print_addresses(state.addresses(), common.output)


@app.command()
@common_options()
def down(
    common: CommonOptions, purge: Annotated[bool, typer.Option("--purge", help="Also delete the stack's data.")] = False
) -> None:
    """Stop the stack. Its data is retained unless --purge is given."""
    Stack(common.project_folder).down(print_message, purge=purge)


@app.command()
@common_options("output")
def status(common: CommonOptions) -> None:
    """Show the addresses and processes of the stack.

    The printed DSNs contain passwords. Exit with code 1 if the stack is not running.
    """
    stack = Stack(common.project_folder)
    state = stack.state()
    if state is None:
        print_message(f"no embedded stack is running in {common.project_folder.resolve()}: run `outbox stack up`")
        raise typer.Exit(exit_codes.ERROR)
    _print_addresses(state.addresses(), common.output)
    if common.output is Output.TABLE:
        rows = [[process.name, process.state, str(process.pid or "")] for process in stack.status()]
        print_table(["process", "state", "pid"], rows)


@app.command()
@common_options()
def logs(
    common: CommonOptions,
    service: Annotated[
        str, typer.Argument(metavar="SERVICE", help="Service: postgres, kafka, registry, connect or supervisor.")
    ],
    lines: Annotated[int, typer.Option("--lines", min=1, metavar="NUMBER", help="Number of lines to print.")] = 50,
) -> None:
    """Print the last lines of a service's log."""
    print_text(Stack(common.project_folder).logs(service, lines))


def _parse_ports(options: list[str]) -> dict[str, int]:
    ports = {}
    for option in options:
        service, _, port = option.partition("=")
        if not port.isdecimal():
            raise typer.BadParameter(f"{option!r} does not have the form SERVICE=PORT", param_hint="--port")
        ports[service] = int(port)
    return ports


def _print_addresses(addresses: dict[str, str], output: Output) -> None:
    if output is Output.JSON:
        print_json(addresses)
    else:
        print_table(["system", "address"], [[name, address] for name, address in addresses.items()])
