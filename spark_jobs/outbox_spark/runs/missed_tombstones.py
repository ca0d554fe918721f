"""Handle the retention of deletions: detect missed tombstones in the topic, and expire entries in the ledger.

Compaction may remove a tombstone `delete.retention.ms` after it was written. A run that reads the topic later misses
the tombstone, and the row remains. The progress therefore contains `committed_at`, a time after which every unread
tombstone was written. With its last batch, a run sets `committed_at` to the time at which it requested the end offsets.
Earlier batches do not change it, because unread records may be older than the run. A run that reads, or ends, later
than `committed_at` plus the retention commits its last batch without `committed_at`. It then compares the table with
the topic and commits the time. If the run crashes first, the next run makes the comparison.

The time comes from the target, because drivers' clocks can differ. Ledger entries expire by Kafka timestamps. The
current time is limited to the newest timestamp that the run has read, so a wrong clock alone does not remove entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from outbox_events.errors import RefusedError
from outbox_spark.jobs.model import MaterializeJob, MissedTombstones, ReadRange, TableProgress
from outbox_spark.kafka.offset_ranges import TopicDescription
from outbox_spark.kafka.topic_access import Topic
from outbox_spark.sinks import TargetTable

EXPIRE_EVERY = timedelta(hours=1)
MAX_CLOCK_DIFFERENCE = timedelta(minutes=5)
"""Maximum time by which differences between clocks may make `committed_at` later than the present."""
_MAX_HOURS = 72
"""Number of hours above which a duration is shown in days."""
_HINT = "run `outbox-reconcile --repair`, which deletes the rows whose tombstones were missed, or run `outbox-rebuild`"


@dataclass
class TombstoneRetention:
    """Retention of deletions in one run. Create it before requesting the end offsets of the topic."""

    job: MaterializeJob
    topic: TopicDescription
    previous: TableProgress | None
    requested_at: datetime
    """Time just before the end offsets were requested. If a run reads up to them, unread tombstones are newer."""
    clock: Callable[[], datetime]
    """Returns the time of the target. `requested_at` is a time of the same clock."""
    expire_before: datetime | None = None
    """Time before which ledger entries must be removed. It is set together with a new `ledger_since`."""
    _newest_timestamp: datetime | None = field(default=None, init=False)
    """Newest Kafka timestamp of the batches so far."""

    @classmethod
    def start(
        cls, job: MaterializeJob, table: TargetTable, topic: Topic, previous: TableProgress | None
    ) -> TombstoneRetention:
        """Request the topic's description, and return the retention for a run of the table."""
        requested_at = table.current_time()
        return cls(job, topic.describe(), previous, requested_at, table.current_time)

    @property
    def since(self) -> datetime | None:
        """Time after which all unread tombstones were written; None if it is unknown."""
        return self.requested_at if self.previous is None else self.previous.committed_at

    @property
    def commit_is_due(self) -> bool:
        """Whether a run without new records must still commit `committed_at`, or make a comparison that is due.

        Otherwise, tombstones would count as missed if a topic had no new records for longer than the retention.
        """
        half_retention = self.topic.delete_retention / 2
        return self._is_unknown or (half_retention > timedelta(0) and self._age > half_retention)

    def may_miss_tombstones(self, read_range: ReadRange) -> bool:
        """Whether tombstones may have been removed before the range is read."""
        if self._is_unknown:
            return True
        return not read_range.is_empty and self._age > self.topic.delete_retention

    @property
    def _age(self) -> timedelta:
        return self.clock() - (self.since or self.requested_at)

    @property
    def _is_unknown(self) -> bool:
        """Whether the time of the last update is unknown, or is in the future because a clock was wrong."""
        return self.since is None or self.since - self.requested_at > MAX_CLOCK_DIFFERENCE

    def warning(self) -> str:
        """Return the warning that tombstones may have been missed."""
        retention = f"the topic retains tombstones for {_duration(self.topic.delete_retention)} (delete.retention.ms)"
        if self._is_unknown:
            return f"{self.job}: the time of the last update is unknown and {retention}: the run may miss tombstones"
        age = _duration(self._age)
        return f"{self.job}: the table was last up to date {age} ago and {retention}: the run may miss tombstones"

    def check_missed_tombstones(self, read_range: ReadRange) -> None:
        """Raise RefusedError if tombstones may be missed and the job has `missed_tombstones: refuse`."""
        if self.job.options.missed_tombstones is MissedTombstones.REFUSE and self.may_miss_tombstones(read_range):
            raise self.refusal()

    def refusal(self) -> RefusedError:
        """Return the error of a job with `missed_tombstones: refuse`."""
        return RefusedError(self.warning(), _HINT)

    def advance(
        self, after_batch: TableProgress, newest_timestamp: datetime | None, *, read_range: ReadRange, is_last: bool
    ) -> TableProgress:
        """Return the progress to commit with a batch.

        `newest_timestamp` is the newest Kafka timestamp of the batch; None if the batch has no records. `is_last`
        states whether the batch ends at the end offsets of the topic.
        """
        self._newest_timestamp = max(filter(None, (self._newest_timestamp, newest_timestamp)), default=None)
        committed_at = self.since
        if is_last:
            committed_at = None if self.may_miss_tombstones(read_range) else self.requested_at
        progress = replace(after_batch, committed_at=committed_at)
        if self.previous is not None:
            # A batch of a replay may end before the committed offsets, which must not decrease.
            offsets = {p: max(self.previous.offsets.get(p, 0), offset) for p, offset in after_batch.offsets.items()}
            progress = replace(progress, offsets=offsets)
        if not is_last or self._newest_timestamp is None:
            return progress
        present = min(self.requested_at, self._newest_timestamp)
        before = present - timedelta(seconds=self.job.options.tombstone_ttl)
        if self.previous is None:
            # Older ledger entries are removed at the next expiry, which avoids a query of the ledger now.
            return replace(progress, ledger_since=before)
        if progress.ledger_since is None or before - progress.ledger_since >= EXPIRE_EVERY:
            self.expire_before = before
            return replace(progress, ledger_since=before)
        return progress


def _duration(duration: timedelta) -> str:
    hours = duration / timedelta(hours=1)
    return f"{hours / 24:.0f} days" if hours > _MAX_HOURS else f"{hours:.1f} h"
