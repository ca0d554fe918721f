"""outbox dead-letter: list, show, replay, drop, acknowledge."""

from __future__ import annotations

import typer

from outbox_kit.cli.commands.dead_letter.acknowledging import acknowledge, drop
from outbox_kit.cli.commands.dead_letter.listing import list_dead_letters, show
from outbox_kit.cli.commands.dead_letter.replaying import replay

app = typer.Typer(help="List, show, replay and acknowledge dead letters.", no_args_is_help=True)
app.command("list")(list_dead_letters)
app.command()(show)
app.command()(replay)
app.command()(drop)
app.command()(acknowledge)
