"""Remember which buckets cannot be sent, and when the process tries them again. The other buckets are still sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from outbox_events.errors import OutboxError
from outbox_kit.results import Reporter

MAX_BACKOFF_S = 10.0
GIVE_UP_S = 300
"""If errors prevent the process from sending a batch for this time, it ends with the last error."""


@dataclass(frozen=True)
class Failure:
    """Last error of a bucket that fails `since` a time. The next attempt is at `due_at`, `delay` seconds later."""

    error: OutboxError
    since: float
    delay: float
    due_at: float


@dataclass
class Failures:
    """Failures of the buckets since their last batch, and of the process since the last batch of any bucket."""

    first_delay: float
    progress: Reporter
    clock: Callable[[], float] = time.monotonic
    by_bucket: dict[int, Failure] = field(default_factory=dict)
    _since: float | None = None
    _session_delay: float = 0.0

    def add(self, bucket: int, error: OutboxError) -> None:
        """Record and report that a bucket was not sent. The delay grows with each failure."""
        earlier, now = self.by_bucket.get(bucket), self.clock()
        delay = self._report(f"bucket {bucket}: {error.message}", earlier.delay if earlier else 0.0)
        self.by_bucket[bucket] = Failure(error, earlier.since if earlier else now, delay, now + delay)

    def add_session(self, error: OutboxError) -> float:
        """Record and report the failure of a session. Return the time in seconds until the next session."""
        self._session_delay = self._report(error.message, self._session_delay)
        return self._session_delay

    def _report(self, problem: str, last_delay: float) -> float:
        self._since = self.clock() if self._since is None else self._since
        delay = min(max(2 * last_delay, self.first_delay), MAX_BACKOFF_S)
        self.progress(f"{problem}; next attempt in {delay:g} s")
        return delay

    def remove(self, buckets: Collection[int]) -> None:
        """Record that batches of these buckets were sent."""
        self._since, self._session_delay = None, 0.0
        for bucket in buckets:
            self.by_bucket.pop(bucket, None)

    def keep(self, held: Collection[int]) -> None:
        """Forget the failures of buckets that another process can send, because they are no longer held."""
        self.by_bucket = {bucket: failure for bucket, failure in self.by_bucket.items() if bucket in held}

    def due(self, buckets: Collection[int]) -> list[int]:
        """Return the buckets that can be sent: those that have not failed, and those whose next attempt is due."""
        waiting = {bucket for bucket, failure in self.by_bucket.items() if self.clock() < failure.due_at}
        return [bucket for bucket in buckets if bucket not in waiting]

    def is_over_limit(self, *, each: bool = False) -> bool:
        """Return whether no batch was sent for GIVE_UP_S since the first error or, with `each`, none of one bucket."""
        starts = [self._since, *(failure.since for failure in self.by_bucket.values() if each)]
        return any(start is not None and self.clock() - start >= GIVE_UP_S for start in starts)

    def raise_last(self) -> None:
        """Raise the last error of the bucket that has failed for the longest time, if there is one."""
        for failure in sorted(self.by_bucket.values(), key=lambda failure: failure.since):
            raise failure.error
