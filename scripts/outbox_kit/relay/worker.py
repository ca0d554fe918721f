"""One session of a relay process: leases, and sending of the leased buckets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event

from outbox_events.kafka.record import Record
from outbox_events.waiting import Deadline
from outbox_kit.deployment import Deployment
from outbox_kit.encoding import InvalidRowError, OutboxRow, RecordEncoder
from outbox_kit.encoding.dead_letter import dead_letter
from outbox_kit.errors import WaitTimeoutError
from outbox_kit.postgres.client import Connection
from outbox_kit.relay import leases
from outbox_kit.relay.batches import Batch, BatchStore
from outbox_kit.relay.leases import Leases
from outbox_kit.relay.metrics import Counters, MetricsFile, read_backlog
from outbox_kit.relay.producer import BucketProducer
from outbox_kit.relay.rows import RowReader
from outbox_kit.results.progress import Reporter

REBALANCE_S = 0.5
ONCE_MARGIN_S = 5
"""Time after the longest lease in which the next owner of a bucket sends a batch."""


@dataclass
class Worker:
    """Sends the rows of the buckets that it holds, until `stop` is set or, with `once`, no row is left."""

    deployment: Deployment
    connection: Connection
    reader: RowReader
    encoder: RecordEncoder
    batch_rows: int
    stop: Event
    progress: Reporter
    counters: Counters
    metrics: MetricsFile | None
    _producers: dict[int, BucketProducer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._store = BatchStore(self.connection, self.reader)
        self._leases = Leases(self.connection, self.reader.tables.outbox_name)
        self._rebalance_at = 0.0
        self._remaining: dict[int, int] = {}
        self._deadline = Deadline(0)

    def run(self, *, once: bool, interval: float) -> None:
        """Raises UnreachableError, RejectedError; the rows of an unfinished batch remain.

        With `once`, raises WaitTimeoutError if another process holds a bucket and does not send its rows.
        """
        last = self._store.last_pending() if once else None
        while not self.stop.is_set():
            self._rebalance()
            self._write_metrics()
            pending = self._store.pending_buckets(self._leases.held)
            if self.stop.is_set():
                return
            self._send(pending, self._claim)
            if once and self._is_complete(last):
                return
            if not pending:
                self.stop.wait(interval)

    def _is_complete(self, last: int | None) -> bool:
        """Return whether no row up to the place `last` is left in any bucket, also in those of other processes."""
        remaining = {} if last is None else self._store.first_pending(last)
        if remaining != self._remaining:
            self._remaining, self._deadline = remaining, Deadline(leases.LEASE_S + ONCE_MARGIN_S)
        if remaining and not self._deadline.seconds_left:
            buckets = ", ".join(map(str, sorted(remaining)))
            raise WaitTimeoutError(
                f"rows remain in the buckets {buckets}: another process holds their leases and sends none",
                "find its session in pg_stat_activity (application_name like 'outbox-kit relay%'), end the process, "
                "then run the command again",
            )
        return not remaining

    def _rebalance(self) -> None:
        if time.monotonic() < self._rebalance_at:
            return
        self._rebalance_at = time.monotonic() + REBALANCE_S
        acquired, released = self._leases.rebalance()
        for bucket in released:
            self._producers.pop(bucket, None)
        self._send([bucket for bucket in acquired if self._store.claimed(bucket) is not None], self._store.claimed)
        if acquired or released:
            self.progress(f"holds buckets {', '.join(map(str, sorted(self._leases.held)))}")

    def _write_metrics(self) -> None:
        if self.metrics is not None and self.metrics.is_due:
            self.metrics.write(read_backlog(self.connection, self.reader, self._leases.held))

    def _claim(self, bucket: int) -> Batch | None:
        return self._store.claim(bucket, self.batch_rows)

    def _send(self, buckets: Sequence[int], read: Callable[[int], Batch | None]) -> None:
        """Send the batches that `read` returns, each in a transaction. The brokers work on all of them at once.

        The producers fence former owners before the batches are read. In the opposite order, a process that was stopped
        in between and has lost its lease would fence the new owner, and then send old states.
        """
        if not buckets:
            return
        producers = self._initialized(buckets)
        with self._store.transaction():
            batches = [batch for batch in map(read, buckets) if batch is not None]
        # The records are encoded before the first transaction begins, because transactions time out.
        records = {batch.bucket: self._records(batch) for batch in batches}
        committed: list[Batch] = []
        try:
            for bucket, batch_records in records.items():
                producers[bucket].send(batch_records)
            for batch in batches:
                producers[batch.bucket].commit()
                committed.append(batch)
        except Exception:
            for batch in batches[len(committed) :]:
                producers[batch.bucket].abort()
            raise
        finally:
            self._complete(committed, records)

    def _complete(self, batches: Sequence[Batch], records: Mapping[int, Sequence[Record]]) -> None:
        if not batches:
            return
        self._store.complete(batches)
        sent = [record for batch in batches for record in records[batch.bucket]]
        letters = sum(record.topic == self.encoder.pipeline.dead_letter_topic for record in sent)
        self.counters.sent += len(sent) - letters
        self.counters.dead_letters += letters
        self.counters.batches += len(batches)

    def _records(self, batch: Batch) -> list[Record]:
        records = []
        for row, position in zip(batch.rows, batch.positions, strict=True):
            self._leases.keep()
            records.append(self._record(self.reader.outbox_row(row), batch.sequence(position)))
        return records

    def _record(self, row: OutboxRow, sequence: str) -> Record:
        try:
            return self.encoder.encode(row, sequence)
        except InvalidRowError as error:
            self.progress(f"row with source_sequence {sequence} is a dead letter ({error.reason}): {error.message}")
            return dead_letter(self.encoder, row, sequence, error, self.reader.whole_row(self.connection, row.id))

    def _initialized(self, buckets: Sequence[int]) -> dict[int, BucketProducer]:
        """Return the producers of the buckets. All new ones are initialized at the same time."""
        kafka = self.deployment.environment.kafka
        for bucket in buckets:
            if bucket not in self._producers:
                transactional_id = f"outbox-relay.{self.encoder.pipeline.prefix}.{bucket}"
                self._producers[bucket] = BucketProducer(kafka, transactional_id, self._leases.keep)
        for bucket in buckets:
            self._producers[bucket].initialize()
        return {bucket: self._producers[bucket] for bucket in buckets}
