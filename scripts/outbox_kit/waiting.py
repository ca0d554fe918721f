"""The one way to wait: bounded, and able to say what it waited for and what it last saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from outbox_kit.errors import WaitTimeoutError

T = TypeVar("T")


@dataclass(frozen=True)
class Seen(Generic[T]):
    """One look at something awaited: its value once it is there, and what was seen, in words."""

    value: T | None
    text: str


def wait_for(what: str, look: Callable[[], Seen[T]], *, seconds: float, every: float = 0.25, hint: str = "") -> T:
    """Look until `look` has a value, for at most `seconds`; look at once, then every `every` seconds.

    Raises WaitTimeoutError, naming what was awaited and what was last seen. What `look` raises ends
    the wait at once: use it for what cannot get better.
    """
    retrying = Retrying(
        stop=stop_after_delay(seconds),
        wait=wait_fixed(every),
        retry=retry_if_result(lambda seen: seen.value is None),
    )
    try:
        seen = retrying(look)
    except RetryError as error:
        last: Seen[T] = error.last_attempt.result()
        message = f"waited {seconds:g} s for {what}; last seen: {last.text}"
        raise WaitTimeoutError(message, hint) from None
    if seen.value is None:  # unreachable by the retry condition; tells the type checker
        raise WaitTimeoutError(f"waited for {what}; last seen: {seen.text}", hint)
    return seen.value
