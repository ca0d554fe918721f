"""Command line `outbox`: options, prompts, output and exit codes. All other logic is in the packages that it calls."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from outbox_kit.cli import exit_codes
from outbox_kit.cli.app import app
from outbox_kit.cli.console import print_error, print_traceback
from outbox_kit.errors import OutboxKitError


def main() -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app(prog_name="outbox")
    except OutboxKitError as error:
        if "--debug" in sys.argv:
            print_traceback()
        print_error(error)
        sys.exit(exit_codes.ERROR)
    except KeyboardInterrupt:
        sys.exit(exit_codes.INTERRUPTED)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM like Ctrl-C, so that cleanup runs."""
    raise KeyboardInterrupt
