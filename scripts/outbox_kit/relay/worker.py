"""Run one session of a relay process. The session holds leases and sends the rows of the leased buckets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Event

from outbox_events.errors import RefusedError, WaitTimeoutError
from outbox_events.kafka.record import Record
from outbox_events.text import plural
from outbox_events.waiting import Deadline
from outbox_kit.deployment import Deployment
from outbox_kit.encoding import InvalidRowError, OutboxRow, RecordEncoder
from outbox_kit.encoding.dead_letter import dead_letter_record
from outbox_kit.postgres.client import Connection
from outbox_kit.relay import leases, unread_rows
from outbox_kit.relay.batches import Batch, BatchStore
from outbox_kit.relay.buckets import transactional_id
from outbox_kit.relay.leases import Leases
from outbox_kit.relay.metrics import INTERVAL_S, Counters, MetricsFile, read_backlog
from outbox_kit.relay.producer import BucketProducer
from outbox_kit.relay.rows import RowReader
from outbox_kit.relay.tables import RelayTables
from outbox_kit.results import Reporter

REBALANCE_S = 0.5
UNREAD_HINT = "do not delete a row in the transaction that inserts it (docs/sending.md, An empty outbox table)"
ONCE_MARGIN_S = 5
"""Time that a bucket's next owner has to send a batch after the longest lease has expired."""


@dataclass(frozen=True)
class RelayOptions:
    """Options of one relay process."""

    marks: bool = False
    once: bool = False
    batch_rows: int = 500
    interval: float = 0.1
    with_connect: bool = True
    metrics_file: Path | None = None


@dataclass(frozen=True)
class RelayProcess:
    """Objects that the consecutive sessions of a relay process share."""

    deployment: Deployment
    options: RelayOptions
    tables: RelayTables
    encoder: RecordEncoder
    stop: Event
    progress: Reporter
    counters: Counters = field(default_factory=Counters)

    @cached_property
    def metrics(self) -> MetricsFile:
        return MetricsFile(self.options.metrics_file, self.deployment.pipeline.name, self.counters, self.progress)


class Worker:
    """Sends the rows of its buckets until the process stops or, with `once`, until all rows are sent."""

    def __init__(self, process: RelayProcess, connection: Connection, reader: RowReader) -> None:
        self._process, self._connection, self._reader = process, connection, reader
        self._producers: dict[int, BucketProducer] = {}
        self._store = BatchStore(connection, reader)
        self._leases = Leases(connection, reader.tables.outbox_name)
        self._rebalance_at = self._count_at = 0.0
        self._remaining: dict[int, int] = {}
        self._deadline = Deadline(0)

    def run(self) -> None:
        """Send rows. Raises UnreachableError and RejectedError. The rows of an unfinished batch remain in the table.

        With `once`, raises WaitTimeoutError if another process holds a bucket and does not send its rows.
        """
        options, stop = self._process.options, self._process.stop
        last = self._store.last_pending() if options.once else None
        while not stop.is_set():
            self._rebalance()
            self._write_metrics()
            if not options.once:
                self._report_unread_rows()
            pending = self._store.pending_buckets(self._leases.held)
            if stop.is_set():
                return
            self._send(pending, partial(self._store.claim, limit=options.batch_rows))
            if options.once and self._is_complete(last):
                self._report_unread_rows()
                return
            if not pending:
                stop.wait(options.interval)

    def _is_complete(self, last: int | None) -> bool:
        """Return whether all rows up to the position `last` are sent, including rows in other processes' buckets."""
        remaining = {} if last is None else self._store.first_pending(last)
        if remaining != self._remaining:
            self._remaining, self._deadline = remaining, Deadline(leases.LEASE_S + ONCE_MARGIN_S)
        if remaining and not self._deadline.seconds_left:
            buckets = ", ".join(map(str, sorted(remaining)))
            raise WaitTimeoutError(
                f"rows remain in the buckets {buckets}: another process holds their leases and does not send the rows",
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
            self._process.progress(f"holds buckets {', '.join(map(str, sorted(self._leases.held)))}")

    def _report_unread_rows(self) -> None:
        """Report rows that were deleted before the relay read them. With `once`, raises RefusedError."""
        if time.monotonic() < self._count_at:
            return
        self._count_at = time.monotonic() + INTERVAL_S
        unread = unread_rows.count(self._connection, self._process.tables)
        if not unread:
            return
        self._process.counters.unread += unread
        outbox = self._process.tables.outbox_name
        problem = f"{plural(unread, 'row')} of {outbox} were deleted before the relay read them, so they are not sent"
        if self._process.options.once:
            raise RefusedError(problem, UNREAD_HINT)
        self._process.progress(f"{problem}: {UNREAD_HINT}")

    def _write_metrics(self) -> None:
        if self._process.metrics.is_due:
            self._process.metrics.write(read_backlog(self._connection, self._reader, self._leases.held))

    def _send(self, buckets: Sequence[int], read: Callable[[int], Batch | None]) -> None:
        """Send the batches that `read` returns. Each batch is one transaction, and all transactions run concurrently.

        The producers fence former owners before the batches are read. In the opposite order, a process that was paused
        between the two steps and lost its lease would fence the new owner and then send old states.
        """
        if not buckets:
            return
        producers = self._initialized(buckets)
        with self._connection.transaction():  # commits all claims together
            batches = [batch for batch in map(read, buckets) if batch is not None]
        # The records are encoded before the first Kafka transaction begins, because the transactions have a timeout.
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
        dead_letter_topic, counters = self._process.tables.pipeline.dead_letter_topic, self._process.counters
        dead_letters = sum(record.topic == dead_letter_topic for record in sent)
        counters.sent += len(sent) - dead_letters
        counters.dead_letters += dead_letters
        counters.batches += len(batches)

    def _records(self, batch: Batch) -> list[Record]:
        records = []
        for row, position in zip(batch.rows, batch.positions, strict=True):
            self._leases.keep()
            records.append(self._record(self._reader.outbox_row(row), batch.sequence(position)))
        return records

    def _record(self, row: OutboxRow, sequence: str) -> Record:
        try:
            return self._process.encoder.encode(row, sequence)
        except InvalidRowError as error:
            report = f"row with source_sequence {sequence} is a dead letter ({error.reason}): {error.message}"
            self._process.progress(report)
            whole_row = self._reader.whole_row(self._connection, row.id)
            return dead_letter_record(self._process.encoder, row, sequence, error, whole_row)

    def _initialized(self, buckets: Sequence[int]) -> dict[int, BucketProducer]:
        """Return the producers of the buckets. All new producers are initialized concurrently."""
        kafka = self._process.deployment.environment.kafka
        for bucket in buckets:
            if bucket not in self._producers:
                name = transactional_id(self._process.tables.pipeline.prefix, bucket)
                self._producers[bucket] = BucketProducer(kafka, name, self._leases.keep)
        for bucket in buckets:
            self._producers[bucket].initialize()
        return {bucket: self._producers[bucket] for bucket in buckets}
