"""The command `outbox`: the only place that prints or exits.

Exit codes: 0 fine, 1 error or failed check, 2 usage, 3 changes pending (`plan`). Data goes to stdout, words
for people to stderr.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from outbox_kit.cli.app import app
from outbox_kit.cli.console import fail, show_traceback
from outbox_kit.cli.options import hoist
from outbox_kit.errors import OutboxKitError

INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit."""
    arguments = hoist(sys.argv[1:])
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        app(args=arguments, prog_name="outbox", standalone_mode=True)
    except OutboxKitError as error:
        if "--debug" in arguments:
            show_traceback()
        fail(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _as_interrupt(_signal: int, _frame: FrameType | None) -> None:
    """A polite kill ends like Ctrl-C: what was started is stopped."""
    raise KeyboardInterrupt
