"""stack up, down, status, logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outbox_kit.cli.console import print_json, print_table, say
from outbox_kit.cli.options import Common, Output

if TYPE_CHECKING:
    from outbox_kit.stack import Stack

app = typer.Typer(
    help="The embedded stack: PostgreSQL, Kafka, registry, Connect as local processes.", no_args_is_help=True
)


@app.command()
def up(
    context: typer.Context,
    port: Annotated[
        list[str] | None, typer.Option("--port", help="PART=NUMBER, for instance kafka=9092; repeatable.")
    ] = None,
) -> None:
    """Start the stack on free ports and wait until every part answers."""
    common: Common = context.obj
    state = _stack(common).up(say, ports=_ports(port or []))
    _addresses(state.addresses(), common.output)


@app.command()
def down(
    context: typer.Context,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete its data.")] = False,
) -> None:
    """Stop the stack; its data stays."""
    common: Common = context.obj
    _stack(common).down(say, purge=purge)


@app.command()
def status(context: typer.Context) -> None:
    """Show the addresses and processes. Exit code 1 when the stack is not up. The DSNs hold passwords."""
    common: Common = context.obj
    stack = _stack(common)
    state = stack.state()
    if state is None:
        say("the embedded stack is not up; start it with `outbox stack up` (the one in containers: `make ps`)")
        raise typer.Exit(1)
    _addresses(state.addresses(), common.output)
    if common.output is Output.TABLE:
        rows = [[part.name, part.state, str(part.pid or "")] for part in stack.status()]
        print_table(["process", "state", "pid"], rows)


@app.command()
def logs(
    context: typer.Context,
    part: Annotated[str, typer.Argument(help="postgres, kafka, registry or connect.")],
    lines: Annotated[int, typer.Option("--lines", min=1, help="How many of the last lines.")] = 50,
) -> None:
    """Print the end of a part's log."""
    common: Common = context.obj
    typer.echo(_stack(common).logs(part, lines))


def _stack(common: Common) -> Stack:
    from outbox_kit.stack import Stack  # noqa: PLC0415 - no other command pays for its import

    return Stack(common.project)


def _ports(options: list[str]) -> dict[str, int]:
    ports = {}
    for option in options:
        part, _, number = option.partition("=")
        if not number.isdecimal():
            raise typer.BadParameter(f"{option!r} is not PART=NUMBER", param_hint="--port")
        ports[part] = int(number)
    return ports


def _addresses(addresses: dict[str, str], output: Output) -> None:
    if output is Output.JSON:
        print_json(addresses)
    else:
        print_table(["system", "address"], [[name, address] for name, address in addresses.items()])
