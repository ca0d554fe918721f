"""Show on a terminal what a command waits for and since when, if the command has printed nothing for two seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

SHOWN_AFTER_S = 2
INTERVAL_S = 1
ERASE_LINE = "\r\x1b[K"


class Waiting:
    """Line at the end of the output with the last message and the time since it was printed."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._lock = threading.Lock()
        self._text, self._since, self._is_shown = "", 0.0, False
        self._is_running = False

    def start(self, text: str) -> None:
        """Erase the line, so that other output can be printed, and begin to wait for `text` if it is not empty."""
        with self._lock:
            if self._is_shown:
                self._write(ERASE_LINE)
            self._text, self._since, self._is_shown = text if self._is_running else "", self._clock(), False

    def update(self) -> None:
        """Print the line again with the current time."""
        with self._lock:
            seconds = self._clock() - self._since
            if self._text and seconds >= SHOWN_AFTER_S:
                suffix, self._is_shown = f" ({seconds:.0f} s)", True
                self._write(f"{ERASE_LINE}{self._text[: self._console.width - len(suffix) - 1]}{suffix}")

    @contextmanager
    def running(self, text: str) -> Iterator[None]:
        """Show what the block waits for, at first `text`. Without a terminal, show nothing."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(INTERVAL_S):
                self.update()

        self._is_running = self._console.is_terminal
        self.start(text)
        if self._is_running:
            threading.Thread(target=run, daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            self._is_running = False
            self.start("")

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()
