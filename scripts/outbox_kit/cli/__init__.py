"""Implement the `outbox` command line: options, prompts, output and exit codes. All other logic is elsewhere."""

from __future__ import annotations

import atexit
import signal
import sys
from contextlib import suppress

from outbox_common.interrupts import end_process, handle_signals, raise_interrupt, was_interrupted


def main() -> None:
    """Run the command. After Ctrl-C or SIGTERM, exit with INTERRUPTED, whatever the process is doing at that time."""
    handle_signals(end_process)
    atexit.register(handle_signals, signal.SIG_IGN)  # Python's last steps would replace the handler by the default
    from outbox_common.pipeline_files import UsageError  # noqa: PLC0415 - a signal can arrive during these imports
    from outbox_events.errors import OutboxError  # noqa: PLC0415
    from outbox_kit.cli import exit_codes  # noqa: PLC0415
    from outbox_kit.cli.app import app  # noqa: PLC0415
    from outbox_kit.cli.console import print_error, print_message, print_traceback  # noqa: PLC0415

    try:
        try:
            handle_signals(raise_interrupt)
            app(prog_name="outbox")
        finally:
            handle_signals(end_process)
    except OutboxError as error:
        if "--debug" in sys.argv:
            print_traceback(error)
        print_error(error)
        failure = exit_codes.USAGE if isinstance(error, UsageError) else exit_codes.ERROR
        sys.exit(exit_codes.INTERRUPTED if was_interrupted(error) else failure)
    except (SystemExit, KeyboardInterrupt) as end:
        if not was_interrupted(end):
            raise
        print_message("interrupted")
        sys.exit(exit_codes.INTERRUPTED)
    finally:
        with suppress(OSError, ValueError):  # stdout is closed
            sys.stdout.flush()  # end_process() discards what is buffered
