"""Background thread that keeps a LatestState current."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from outbox_events.errors import OutboxError, WaitTimeoutError

_LOG = logging.getLogger(__name__)
RETRY_S = 1.0
STOP_S = 60.0
"""Limit for the end of the thread: above that of a check of the topic and the saving of a snapshot."""


class Follower:
    """Calls `step` in a thread until it is stopped. A transient error is stored, and the step is repeated."""

    def __init__(self, name: str, step: Callable[[], bool]) -> None:
        """`step` returns whether it has contacted the brokers successfully, which ends an earlier error."""
        self._name = name
        self._step = step
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None
        """Last error of a step that was not followed by a success."""

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @property
    def has_failed(self) -> bool:
        """Whether an unexpected error has ended the thread."""
        return self.error is not None and not isinstance(self.error, OutboxError)

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is not None:
            return
        self.error = None
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait until it has ended. Raises WaitTimeoutError."""
        if self._thread is None:
            return
        self._stopping.set()
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            raise WaitTimeoutError(f"waited {STOP_S:g} s for the end of the thread {self._name}", "check the brokers")
        self._thread = None

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._step():
                    self.error = None
            except OutboxError as error:
                self.error = error
                _LOG.warning("%s: %s", self._name, error)
                self._stopping.wait(RETRY_S)
            except Exception as error:
                self.error = error
                _LOG.exception("%s has ended", self._name)
                return
