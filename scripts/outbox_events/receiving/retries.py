"""When an event that could not be handled is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from outbox_events.errors import ConfigurationError, OutboxError
from outbox_events.receiving.outages import is_database_misconfigured, is_outage

MAX_EXPONENT = 30


class Reaction(Enum):
    """What follows an error."""

    RETRY = "retry"
    """Try again until the attempts are used up, then recover."""
    WAIT = "wait"
    """Try again without a limit: the event is not the cause, for example while the database is unreachable."""
    RECOVER = "recover"
    """Recover at once: no retry can succeed."""
    STOP = "stop"
    """Stop the receiver before the event: no event is the cause, and no retry can succeed until it is corrected."""


def default_reaction(error: Exception) -> Reaction:
    """Return WAIT for outages, STOP for a misconfigured database, RECOVER for unusable records.

    All other errors are RETRY.

    Errors of an HTTP client are RETRY: pass a function of your own to wait for a dependency without a limit.
    """
    if is_outage(error):
        return Reaction.WAIT
    if is_database_misconfigured(error):
        return Reaction.STOP
    if isinstance(error, OutboxError) and not error.transient:
        return Reaction.RECOVER
    return Reaction.RETRY


@dataclass(frozen=True)
class Retries:
    """Number of attempts and the delays between them. The first delivery is an attempt; 1 means no retry.

    The n-th delay is `first_delay_s` * `factor` ** (n - 1), at most `max_delay_s`, plus or minus the fraction `jitter`.
    Raises ConfigurationError for a number that leads to no attempt or no valid delay.
    """

    attempts: int = 3
    first_delay_s: float = 0.5
    factor: float = 2.0
    max_delay_s: float = 60.0
    jitter: float = 0.2
    reaction: Callable[[Exception], Reaction] = default_reaction

    def __post_init__(self) -> None:
        minimums = {"attempts": 1, "first_delay_s": 0, "factor": 1, "max_delay_s": 0, "jitter": 0}
        for name, minimum in minimums.items():
            require_at_least(minimum, name, getattr(self, name))
        if self.jitter > 1:
            raise ConfigurationError(f"jitter must be at most 1, not {self.jitter:g}")

    def delay_s(self, failures: int) -> float:
        """Return the seconds to wait after this number of failures of one event."""
        exponent = min(failures - 1, MAX_EXPONENT)
        delay = min(self.first_delay_s * self.factor**exponent, self.max_delay_s)
        return delay * (1 + random.uniform(-self.jitter, self.jitter))  # noqa: S311 - no secret


def require_at_least(minimum: float, name: str, value: float) -> None:
    """Raise ConfigurationError if `value` is less than `minimum` or NaN."""
    if not value >= minimum:
        raise ConfigurationError(f"{name} must be at least {minimum:g}, not {value:g}")
