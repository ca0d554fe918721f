"""Run one session of a relay process. The session holds leases and sends the rows of the leased buckets."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

from outbox_events import limited_calls
from outbox_events.errors import RefusedError, RejectedError, UnreachableError, WaitTimeoutError
from outbox_events.kafka.record import Record
from outbox_events.text import plural
from outbox_events.waiting import Deadline
from outbox_kit.deployment import Deployment
from outbox_kit.encoding import InvalidRowError, RecordEncoder
from outbox_kit.encoding.dead_letter import dead_letter_record
from outbox_kit.postgres.client import Connection, Row, relay_sessions
from outbox_kit.relay import leases, unread_rows
from outbox_kit.relay.batches import Batch, BatchStore
from outbox_kit.relay.buckets import BUCKETS
from outbox_kit.relay.failures import Failures
from outbox_kit.relay.leases import Leases
from outbox_kit.relay.metrics import INTERVAL_S, Counters, MetricsFile, read_backlog
from outbox_kit.relay.producer import BucketProducer
from outbox_kit.relay.rows import RowReader
from outbox_kit.relay.tables import RelayTables
from outbox_kit.results import Reporter

REBALANCE_S = 0.5
UNREAD_HINT = "do not delete a row in the transaction that inserts it (docs/sending.md, An empty outbox table)"
Sent = tuple[Batch, int]
"""Batch whose Kafka transaction is committed, and the number of its dead letters."""
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
    counters: Counters
    failures: Failures
    metrics: MetricsFile


class Worker:
    """Sends the rows of its buckets until the process stops or, with `once`, until all rows are sent.

    Each batch is one Kafka transaction. While the transactions of some buckets are committed, the main thread claims
    and encodes the batches of others. An error of one bucket does not hold back the other buckets.
    """

    def __init__(self, process: RelayProcess, connection: Connection, reader: RowReader) -> None:
        self._process, self._connection, self._reader = process, connection, reader
        self._producers: dict[int, BucketProducer] = {}
        self._in_flight: dict[int, Future[Sent | None]] = {}
        """Calls of producers, which commit a batch or initialize the producer."""
        self._completion: Future[None] = limited_calls.start(lambda: None)
        self._claimed: set[int] = set()
        """Buckets that can have a claimed batch, which must be sent before another batch is claimed."""
        self._store = BatchStore(connection, reader)
        self._leases = Leases(connection, reader.tables.outbox_name)
        self._rebalance_at = self._count_at = 0.0
        self._unread = 0
        self._remaining: dict[int, int] = {}
        self._deadline = Deadline(0)

    def run(self) -> None:
        """Send rows. Raises UnreachableError and RejectedError. The rows of an unfinished batch remain in the table.

        With `once`, raises WaitTimeoutError if another process holds a bucket and does not send its rows.
        """
        options, stop = self._process.options, self._process.stop
        last = self._store.last_pending() if options.once else 0
        while not stop.is_set():
            self._rebalance()
            committed = self._collect()
            self._store.floors.refresh(self._leases.held)
            self._write_metrics()
            is_complete = options.once and self._is_complete(last)
            if is_complete or not options.once:
                self._report_unread_rows()
            if is_complete:
                break
            batches = self._claim_next([batch.bucket for batch, _ in committed])
            # PostgreSQL deletes the rows of one half of the buckets while this thread encodes those of the other half.
            with self._completing(committed):
                self._send(batches)
            if not (committed or batches):
                self._pause()
        while self._in_flight:
            self._pause()
            with self._completing(self._collect()):
                pass

    def _claim_next(self, committed: Sequence[int]) -> list[Batch]:
        """Claim batches of up to half of the buckets. Exclude those that are in flight or `committed`."""
        failures = self._process.failures
        if failures.is_over_limit(each=self._process.options.once):
            failures.raise_last()
        idle = [bucket for bucket in self._leases.held if bucket not in self._in_flight and bucket not in committed]
        pending = self._store.floors.first_pending(idle)
        if not pending and not self._in_flight and not committed:
            failures.remove(idle)
        for bucket in set(idle) - pending.keys():  # its rows were deleted
            failures.by_bucket.pop(bucket, None)
        due = failures.due(pending)
        for bucket in due:
            if bucket not in self._producers:
                self._initialize(bucket)
        # The producers fence former owners before the batches are read. In the opposite order, a process that was
        # paused between the two steps and lost its lease would fence the new owner and then send old states.
        ready = [bucket for bucket in self._producers if bucket in due and bucket not in self._in_flight]
        ready = ready[: math.ceil(len(self._leases.held) / 2)]
        for bucket in ready:  # to the end of the order, so that each bucket has its turn
            self._producers[bucket] = self._producers.pop(bucket)
        return self._read(ready) if ready else []

    def _pause(self) -> None:
        """Wait until a call of a producer ends or, if there is none, for the polling interval."""
        if self._in_flight:
            wait(self._in_flight.values(), min(self._process.options.interval, leases.KEEP_S), FIRST_COMPLETED)
            self._keep_lease()
        else:
            self._process.stop.wait(self._process.options.interval)

    def _keep_lease(self) -> None:
        """Keep the lease, unless a completion uses the connection, which also keeps it."""
        if self._completion.done():
            self._leases.keep()

    def _initialize(self, bucket: int) -> None:
        kafka, prefix = self._process.deployment.environment.kafka, self._process.tables.pipeline.prefix
        producer = BucketProducer(kafka, f"outbox-relay.{prefix}.{bucket}", self._keep_lease)
        self._producers[bucket] = producer
        self._in_flight[bucket] = limited_calls.start(producer.initialize)

    def _read(self, buckets: Sequence[int]) -> list[Batch]:
        """Return the batches that were claimed earlier and, for the other buckets, claim the next rows."""
        with self._connection.transaction():  # commits all claims together
            batches = self._store.claimed([bucket for bucket in buckets if bucket in self._claimed])
            claimed = {batch.bucket for batch in batches}
            limit = self._process.options.batch_rows
            batches += self._store.claim([bucket for bucket in buckets if bucket not in claimed], limit)
        self._claimed.difference_update(buckets)
        self._claimed.update(batch.bucket for batch in batches)
        return batches

    def _send(self, batches: Sequence[Batch]) -> None:
        """Send each batch in a transaction, and begin to commit the transactions."""
        dead_letter_topic = self._process.tables.pipeline.dead_letter_topic
        for batch in batches:
            # The records are encoded before the Kafka transaction begins, because the transaction has a timeout.
            records, producer = [*self._records(batch)], self._producers[batch.bucket]
            try:
                producer.send(records)
            except (UnreachableError, RejectedError) as error:
                self._fail(batch.bucket, error)
                continue
            dead_letters = sum(record.topic == dead_letter_topic for record in records)
            self._in_flight[batch.bucket] = limited_calls.start(partial(_commit, producer, (batch, dead_letters)))

    def _collect(self) -> list[Sent]:
        """Return the batches whose transactions are committed, and whose rows must be completed."""
        committed: list[Sent] = []
        for bucket in [bucket for bucket, call in self._in_flight.items() if call.done()]:
            call = self._in_flight.pop(bucket)
            try:
                committed += [sent] if (sent := call.result()) else []
            except (UnreachableError, RejectedError) as error:
                self._fail(bucket, error)
        return committed

    def _fail(self, bucket: int, error: UnreachableError | RejectedError) -> None:
        """Record the error. The next attempt needs a new producer, which also ends the open transaction."""
        self._producers.pop(bucket, None)
        self._process.counters.errors += 1
        self._process.failures.add(bucket, error)

    @contextmanager
    def _completing(self, committed: Sequence[Sent]) -> Iterator[None]:
        """Complete the rows in a thread. Before the context uses the connection, it must wait for `_completion`."""
        if not committed:
            yield
            return
        self._completion = limited_calls.start(partial(self._store.complete, [batch for batch, _ in committed]))
        yield
        self._completion.result()
        buckets = {batch.bucket for batch, _ in committed}
        self._claimed -= buckets
        self._process.failures.remove(buckets)
        dead_letters, counters = sum(count for _, count in committed), self._process.counters
        counters.sent += sum(len(batch.rows) for batch, _ in committed) - dead_letters
        counters.dead_letters += dead_letters
        counters.batches += len(committed)

    def _is_complete(self, last: int) -> bool:
        """Return whether all rows up to the position `last` are sent, including rows in other processes' buckets."""
        first = self._store.floors.first_pending(range(BUCKETS))
        remaining = {bucket: place for bucket, place in first.items() if place <= last}
        others = {bucket: place for bucket, place in remaining.items() if bucket not in self._leases.held}
        if others != self._remaining:
            self._remaining, self._deadline = others, Deadline(leases.LEASE_S + ONCE_MARGIN_S)
        if others and not self._deadline.seconds_left:
            buckets = ", ".join(map(str, sorted(others)))
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
        acquired, released = self._leases.rebalance(busy=self._in_flight)
        for bucket in released:
            self._producers.pop(bucket, None)
        self._claimed.update(acquired)
        self._process.failures.keep(self._leases.held)
        if acquired or released:
            self._process.progress(f"holds buckets {', '.join(map(str, sorted(self._leases.held)))}")

    def _report_unread_rows(self) -> None:
        """Report rows that were deleted before the relay read them. With `once`, raises RefusedError."""
        # With marks, the service deletes sent rows, and their number cannot be told from that of unread rows.
        if self._process.options.marks or time.monotonic() < self._count_at:
            return
        self._count_at = time.monotonic() + INTERVAL_S
        before, self._unread = self._unread, unread_rows.count(self._connection, self._process.tables)
        once, outbox = self._process.options.once, self._process.tables.outbox_name
        if not self._unread:
            return
        # Another process may have deleted rows that it has sent. The statistics count them later than its last batch.
        is_shared = relay_sessions(self._connection, outbox) != [self._connection.info.backend_pid]
        if is_shared and (once or not before):
            return
        self._process.counters.unread += self._unread
        problem = f"deleted before the relay read them, so they are not sent: {plural(self._unread, 'row')} of {outbox}"
        if once:
            raise RefusedError(problem, UNREAD_HINT)
        self._process.progress(f"{problem}; {UNREAD_HINT}")

    def _write_metrics(self) -> None:
        if self._process.metrics.is_due:
            held, failing = self._leases.held, len(self._process.failures.by_bucket)
            backlog = read_backlog(self._connection, self._reader, held, self._store.floors.of(held), failing)
            self._process.metrics.write(backlog)

    def _records(self, batch: Batch) -> Iterator[Record]:
        for sequence, row in batch.rows:
            self._keep_lease()
            yield self._record(row, sequence)

    def _record(self, row: Row, sequence: str) -> Record:
        outbox_row, encoder = self._reader.outbox_row(row), self._process.encoder
        try:
            return encoder.encode(outbox_row, sequence)
        except InvalidRowError as error:
            report = f"row with source_sequence {sequence} is a dead letter ({error.reason}): {error.message}"
            self._process.progress(report)
            self._completion.exception()  # waits until the connection is free
            whole_row = self._reader.whole_row(self._connection, outbox_row.id)
            return dead_letter_record(encoder, outbox_row, sequence, error, whole_row)


def _commit(producer: BucketProducer, sent: Sent) -> Sent:
    producer.commit()
    return sent
