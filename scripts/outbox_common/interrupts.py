"""Handle Ctrl-C while a command imports its modules."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Make Ctrl-C end the process immediately while the block runs. The block must only import modules.

    Libraries with native code discard a KeyboardInterrupt that is raised during their import. Without this context
    manager, the command would then continue and change systems.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not is_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
