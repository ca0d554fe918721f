"""Show on a terminal what a command waits for and since when, if the command has printed nothing for two seconds."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

SHOWN_AFTER_S = 2
INTERVAL_S = 1
ERASE_LINE = "\r\x1b[K"
DEFAULT_WIDTH = 80


class WaitingLine:
    """Line at the end of stderr, with what the command waits for and the time since it began to wait."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()  # reentrant, because a signal handler of the main thread can print a message
        self._text, self._since, self._is_shown = "", 0.0, False
        self._file: TextIO | None = None

    def start(self, text: str) -> None:
        """Erase the line, and show `text` with the elapsed time from now on. Show nothing if it is empty."""
        with self.erased():
            self._text, self._since = text if self._file else "", self._clock()

    @contextmanager
    def erased(self) -> Iterator[None]:
        """Erase the line, and do not print it within the block."""
        with self._lock:
            if self._is_shown:
                self._write(ERASE_LINE)
                self._is_shown = False
            yield

    def update(self) -> None:
        """Print the line again with the current time."""
        with self._lock:
            seconds = self._clock() - self._since
            if self._text and seconds >= SHOWN_AFTER_S:
                suffix, self._is_shown = f" ({seconds:.0f} s)", True
                self._write(f"{ERASE_LINE}{self._text[: self._width - len(suffix) - 1]}{suffix}")

    @contextmanager
    def running(self, text: str) -> Iterator[None]:
        """Show what the block waits for, at first `text`. Without a terminal, show nothing."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(INTERVAL_S):
                self.update()

        self._file = sys.stderr if sys.stderr.isatty() else None
        self.start(text)
        if self._file:
            threading.Thread(target=run, daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            self.start("")
            self._file = None

    @property
    def _width(self) -> int:
        """Width of the terminal. shutil.get_terminal_size() would measure stdout, which can be a file."""
        try:
            return os.get_terminal_size(self._file.fileno() if self._file else 2).columns
        except OSError:
            return DEFAULT_WIDTH

    def _write(self, text: str) -> None:
        if self._file:
            self._file.write(text)
            self._file.flush()
