"""What a run owes its table beside the records: the time it is up to date as of, missed tombstones, the ledger's end.

Missed tombstones. Compaction removes a tombstone `delete.retention.ms` after it was written. Whoever read the row
before, and comes for the tombstone later than that, keeps the row for ever; no offset tells. So the progress holds
`committed_at`: a time from which on every unread tombstone was written. It is when a run asked for the end that it has
reached. Batches before that end leave it as it was: what is still unread is older than the run. A run that comes, or
ends, later than `committed_at` and the retention commits no time with its last batch, compares the table with the
topic, and only then sets it again: a crash in between leaves the duty to the next run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from outbox_spark.errors import RefusedError
from outbox_spark.jobs.model import Committed, MaterializeJob, MissedTombstones, ReadRange
from outbox_spark.kafka.ranges import TopicState

FORGET_EVERY = timedelta(hours=1)
_MANY_HOURS = 72
_HINT = (
    "outbox-reconcile --repair makes this run, compares the table with the topic and removes such rows; "
    "outbox-rebuild makes the table anew"
)


def now() -> datetime:
    """The driver's clock."""
    return datetime.now(UTC)


@dataclass
class Upkeep:
    """Of one run: made when the topic was asked for its ends."""

    job: MaterializeJob
    topic: TopicState
    previous: Committed | None
    asked_at: datetime = field(default_factory=now)
    forgotten: datetime | None = None
    """Set once the progress says that older deletions are forgotten, and the ledger may still have them."""

    @property
    def since(self) -> datetime | None:
        """Unread tombstones are not older than this; None: not known (layout 1 did not store it)."""
        return self.asked_at if self.previous is None else self.previous.committed_at

    @property
    def note_is_due(self) -> bool:
        """Whether a run without records has something to commit: what an earlier run owes, or that it was there.

        Else a topic that is quiet for longer than the retention would count as missed with its next record.
        """
        half = self.topic.delete_retention / 2
        return self.since is None or (half > timedelta(0) and self.asked_at - self.since > half)

    def missed(self, read: ReadRange) -> bool:
        """Whether tombstones may have been removed before `read` came by them, as of now."""
        if self.since is None:
            return True
        return not read.is_empty and now() - self.since > self.topic.delete_retention

    def warning(self) -> str:
        """What a person is told of it."""
        kept = f"the topic keeps tombstones for {_hours(self.topic.delete_retention)} (delete.retention.ms)"
        if self.since is None:
            return f"{self.job}: it is not known when the table was last up to date, and {kept}: some may be missed"
        past = _hours(now() - self.since)
        return f"{self.job}: the table was last up to date {past} ago, and {kept}: some may be missed"

    def check(self, read: ReadRange) -> None:
        """Raise RefusedError when the job says so of missed tombstones."""
        if self.job.options.missed_tombstones is MissedTombstones.REFUSE and self.missed(read):
            self.refuse()

    def refuse(self) -> NoReturn:
        """For jobs whose missed_tombstones is `refuse`."""
        raise RefusedError(self.warning(), _HINT)

    def stamped(self, reached: Committed, *, read: ReadRange, last: bool) -> Committed:
        """The progress of one batch of `read`; `last` when it ends where the topic ended."""
        time = self.since
        if last:
            time = None if self.missed(read) else self.asked_at
        stamped = replace(reached, committed_at=time)
        if self.previous is not None:
            # A replay begins before what was reached, and may be stopped there.
            stamped = replace(stamped, offsets=_furthest(self.previous.offsets, reached.offsets))
        if not last:
            return stamped
        before = self.asked_at - timedelta(seconds=self.job.options.tombstone_ttl)
        if self.previous is None:
            # Old tombstones that the topic still had are forgotten with the first that grow old: looking costs a query.
            return replace(stamped, ledger_since=before)
        if stamped.ledger_since is None or before - stamped.ledger_since >= FORGET_EVERY:
            self.forgotten = before
            return replace(stamped, ledger_since=before)
        return stamped


def _furthest(before: Mapping[int, int], reached: Mapping[int, int]) -> dict[int, int]:
    return {partition: max(before.get(partition, 0), offset) for partition, offset in reached.items()}


def _hours(duration: timedelta) -> str:
    hours = duration / timedelta(hours=1)
    return f"{hours / 24:.0f} days" if hours > _MANY_HOURS else f"{hours:.1f} h"
