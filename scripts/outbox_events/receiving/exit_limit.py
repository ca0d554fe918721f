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

    def exceeds(limit: float) -> bool:
        while not stop_event.is_set():
            if finished.wait(WATCH_S):
                return False
        return not finished.wait(limit)

    def watch(limit: float, report: Callable[[], None]) -> None:
        if exceeds(limit):
            with suppress(Exception):
                report()
            os._exit(EXIT_CODE)

    if seconds is not None:
        # The second thread ends the process if the report waits for the lock of a handler, which the thread of the
        # block can hold. It starts now, because Python may start no thread after the main thread has ended.
        for limit, report in ((seconds, lambda: _report(thread, seconds, stacks)), (seconds + REPORT_S, _nothing)):
            Thread(target=watch, args=(limit, report), daemon=True, name="outbox-exit-limit").start()
    try:
        yield
    finally:
        finished.set()


def _nothing() -> None:
    pass


def _report(thread: Thread, seconds: float | None, stacks: Callable[[], str]) -> None:
    """Log the lines in which the thread and its coroutines wait, and flush the handlers of logging."""
    stack = "".join(traceback.format_stack(sys._current_frames()[thread.ident or 0]))
    with suppress(Exception):  # a task can end while its frames are read
        stack += stacks()
    log.critical("the receiver did not stop within %g s, the process ends in:\n%s", seconds, stack)
    logging.shutdown()
