"""End the process if a receiver does not stop, for example because a statement waits for a frozen database."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread, current_thread

log = logging.getLogger("outbox_events.receiving")
EXIT_CODE = 75
"""Exit code for a failure after which the same command can succeed later (EX_TEMPFAIL)."""
WATCH_S = 0.5
REPORT_S = 5.0
"""Time limit for the report before the process ends."""


@contextmanager
def exit_limit(stop_event: Event, seconds: float | None, stacks: Callable[[], str]) -> Iterator[None]:
    """End the process with EXIT_CODE if the block has not ended `seconds` after `stop_event` was set.

    No effect if `seconds` is None. `stacks` returns lines of coroutines, which are logged after those of the thread.
    """
    thread, finished = current_thread(), Event()

    def watch(limit: float, report: bool) -> None:
        while not stop_event.is_set():
            if finished.wait(WATCH_S):
                return
        if not finished.wait(limit):
            if report:
                with suppress(Exception):
                    _report(thread, seconds, stacks)
            os._exit(EXIT_CODE)

    if seconds is not None:
        # The report can block on the lock of a logging handler that the thread of the block holds, so a second thread
        # ends the process. It starts now, because Python may start no thread after the main thread has ended.
        for arguments in ((seconds, True), (seconds + REPORT_S, False)):
            Thread(target=watch, args=arguments, daemon=True, name="outbox-exit-limit").start()
    try:
        yield
    finally:
        finished.set()


def _report(thread: Thread, seconds: float | None, stacks: Callable[[], str]) -> None:
    """Log the lines in which the thread and its coroutines wait, and flush the handlers of logging."""
    stack = "".join(traceback.format_stack(sys._current_frames()[thread.ident or 0]))
    with suppress(Exception):  # a task can end while its frames are read
        stack += stacks()
    log.critical("the receiver did not stop within %g s, the process ends in:\n%s", seconds, stack)
    logging.shutdown()
