"""Run the drill: `python -m outbox_lab.drill`."""

import sys

import typer

from outbox_events.errors import OutboxError
from outbox_kit.cli import exit_codes
from outbox_kit.cli.console import print_error
from outbox_lab.drill.command import drill

if __name__ == "__main__":  # processes of multiprocessing import this module
    try:
        typer.run(drill)
    except OutboxError as error:
        print_error(error)
        sys.exit(exit_codes.ERROR)
