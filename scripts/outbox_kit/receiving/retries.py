"""When an event that could not be handled is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from outbox_kit.errors import OutboxKitError
from outbox_kit.receiving.outages import is_outage

MAX_EXPONENT = 30


class Reaction(Enum):
    """What follows an error."""

    RETRY = "retry"
    """Try again until the attempts are used up, then recover."""
    WAIT = "wait"
    """Try again without a limit: the event is not the cause, for example while the database is unreachable."""
    RECOVER = "recover"
    """Recover at once: no retry can succeed."""


def default_reaction(error: Exception) -> Reaction:
    """Return WAIT for outages, RECOVER for records that cannot be used, otherwise RETRY.

    Errors of an HTTP client are RETRY: pass a function of your own to wait for a dependency without a limit.
    """
    if is_outage(error):
        return Reaction.WAIT
    if isinstance(error, OutboxKitError) and not error.transient:
        return Reaction.RECOVER
    return Reaction.RETRY


@dataclass(frozen=True)
class Retries:
    """Number of attempts and the delays between them. The first delivery is an attempt; 1 means no retry.

    The n-th delay is `first_delay_s` * `factor` ** (n - 1), at most `max_delay_s`, plus or minus the fraction `jitter`.
    """

    attempts: int = 3
    first_delay_s: float = 0.5
    factor: float = 2.0
    max_delay_s: float = 60.0
    jitter: float = 0.2
    reaction: Callable[[Exception], Reaction] = default_reaction

    def delay_s(self, failures: int) -> float:
        """Return the seconds to wait after this number of failures of one event."""
        exponent = min(failures - 1, MAX_EXPONENT)
        delay = min(self.first_delay_s * self.factor**exponent, self.max_delay_s)
        return delay * (1 + random.uniform(-self.jitter, self.jitter))  # noqa: S311 - no secret
