"""Handle Ctrl-C and SIGTERM: end the process with exit code 130, immediately or after cleanup code has run."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_CODE = 130  # 128 + SIGINT, as shells report an interrupted command
Handler = Callable[[int, FrameType | None], None]


def end_process(_signal: int, _frame: FrameType | None) -> None:
    """Exit immediately, without cleanup. Use this handler only while there is nothing to clean up."""
    os._exit(EXIT_CODE)


def raise_interrupt(_signal: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, so that cleanup code runs."""
    raise KeyboardInterrupt


def handle_signals(handler: Handler | signal.Handlers) -> None:
    """Have `handler` handle Ctrl-C and SIGTERM. A signal that the parent process ignores remains ignored."""
    for number in _current_handlers():
        signal.signal(number, handler)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Have Ctrl-C and SIGTERM end the process immediately while the block runs. The block must only import modules.

    Libraries with native code discard a KeyboardInterrupt that is raised during their import. Without this context
    manager, the command would then continue and change systems.
    """
    previous = _current_handlers()
    handle_signals(end_process)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _current_handlers() -> dict[signal.Signals, Any]:
    """Return the handlers of the signals that are not ignored. Only the main thread can change them."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    return {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}


def was_interrupted(error: BaseException | None) -> bool:
    """Return whether the error is a KeyboardInterrupt (Ctrl-C), or was raised while one was being handled."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
