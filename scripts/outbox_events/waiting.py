"""Wait for a condition with a time limit. The timeout error contains the last observed state."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from outbox_events.errors import WaitTimeoutError

T = TypeVar("T")


@dataclass(frozen=True)
class Observation(Generic[T]):
    """Result of one poll: the awaited value (None if it is not available yet) and a description of the state."""

    value: T | None
    text: str


def wait_for(
    subject: str, poll: Callable[[], Observation[T]], *, seconds: float, interval: float = 0.25, hint: str = ""
) -> T:
    """Call `poll` immediately and then every `interval` seconds until it returns a value, and return that value.

    After `seconds`, raises WaitTimeoutError, which names `subject`. An error that `poll` raises ends the wait.
    """
    deadline = Deadline(seconds)
    while True:
        result = poll()
        if result.value is not None:
            return result.value
        if not deadline.seconds_left:
            raise WaitTimeoutError(f"waited {seconds:g} s for {subject}; last seen: {result.text}", hint)
        time.sleep(interval)


class Deadline:
    """Time at which the time limit of an operation expires."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """Remaining time in seconds, or 0 after the deadline."""
        return max(0.0, self._end - time.monotonic())
