"""Handle Ctrl-C and SIGTERM while a command imports its modules."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Make Ctrl-C and SIGTERM end the process immediately while the block runs. The block must only import modules.

    Libraries with native code discard a KeyboardInterrupt that is raised during their import. Without this context
    manager, the command would then continue and change systems.
    """
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    try:
        for number in handlers:
            signal.signal(number, signal.SIG_DFL)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
