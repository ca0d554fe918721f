"""Wait for a condition with a time limit. The error contains the last observed state."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from outbox_events.errors import WaitTimeoutError

T = TypeVar("T")


@dataclass(frozen=True)
class Observation(Generic[T]):
    """Result of one poll: the awaited value, or None if it is not available yet, and a description of the state."""

    value: T | None
    text: str


def wait_for(
    subject: str, poll: Callable[[], Observation[T]], *, seconds: float, interval: float = 0.25, hint: str = ""
) -> T:
    """Call `poll` at once and then every `interval` seconds until it returns a value; return that value.

    Raises WaitTimeoutError, which names `subject`, after `seconds`. If `poll` raises an error, the wait ends with it.
    """
    retrying = Retrying(
        stop=stop_after_delay(seconds),
        wait=wait_fixed(interval),
        retry=retry_if_result(lambda result: result.value is None),
    )
    try:
        result = retrying(poll)
    except RetryError as error:
        last_poll: Observation[T] = error.last_attempt.result()
        raise WaitTimeoutError(f"waited {seconds:g} s for {subject}; last seen: {last_poll.text}", hint) from None
    if result.value is None:  # unreachable: for the type checker
        raise WaitTimeoutError(f"waited for {subject}; last seen: {result.text}", hint)
    return result.value


class Deadline:
    """Point in time at which the time limit of an operation ends."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """Remaining time; 0 after the deadline."""
        return max(0.0, self._end - time.monotonic())
