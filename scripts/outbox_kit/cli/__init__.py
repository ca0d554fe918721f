"""Implement the `outbox` command line: options, prompts, output and exit codes. All other logic is elsewhere."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from outbox_common.interrupts import ended_by_signals
from outbox_events.errors import OutboxError
from outbox_kit.cli import exit_codes


def main() -> None:
    with ended_by_signals():
        from outbox_kit.cli.app import app  # noqa: PLC0415 - Ctrl-C can arrive during this slow import
        from outbox_kit.cli.console import print_error, print_message, print_traceback  # noqa: PLC0415
    signal.signal(signal.SIGTERM, _handle_sigterm)
    try:
        app(prog_name="outbox")
    except OutboxError as error:
        if "--debug" in sys.argv:
            print_traceback(error)
        print_error(error)
        sys.exit(exit_codes.ERROR)
    except SystemExit as end:
        if end.code == exit_codes.INTERRUPTED:  # after a KeyboardInterrupt, Typer exits without a message
            print_message("interrupted")
        raise


def _handle_sigterm(_signal: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, as Ctrl-C does, so that cleanup code runs."""
    raise KeyboardInterrupt
