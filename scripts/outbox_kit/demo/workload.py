"""Run the transactions of several concurrent writers on the example library.

Each writer has its own seeded generator, but its choices depend on the rows that other writers have committed.
Therefore, a run can be reproduced only with a single writer and the same initial data.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from random import Random
from threading import Event, Lock
from typing import Any
from uuid import uuid4

import psycopg
from book_management.tables import TABLES, Connection
from psycopg.rows import dict_row

from outbox_events import OutboxEvent, emit_many
from outbox_kit.demo.writer import Effects, SharedIds, Writer
from outbox_kit.results import Reporter, silent

Connect = Callable[[], Connection]

SCHEMA = "library"
"""Schema of the business tables. The outbox table of the pipeline `library` is in the schema `public`."""


@dataclass(frozen=True)
class WorkloadCounts:
    """Numbers of transactions and committed events in a run. The number `events` includes `tombstones`."""

    committed: int
    rolled_back: int
    savepoints_rolled_back: int
    events: int
    tombstones: int
    events_by_aggregate: dict[str, int]
    seconds: float

    @property
    def transactions(self) -> int:
        """Number of transactions that were committed or rolled back."""
        return self.committed + self.rolled_back


def connect(dsn: str) -> Connection:
    """Open a connection to the demo's tables, as `book_management.tables.connect` does for the service's tables."""
    options = f"-c search_path={SCHEMA},public"
    name = "outbox-demo-workload"
    return psycopg.connect(dsn, row_factory=dict_row, options=options, connect_timeout=10, application_name=name)


def create_tables(connection: Connection) -> None:
    """Create the schema and the business tables if they do not exist."""
    with connection.transaction():
        connection.execute(f"create schema if not exists {SCHEMA}")
        connection.execute(TABLES)


def run(
    source: str | Connect, *, transactions: int = 3000, seed: int = 1, writers: int = 3, progress: Reporter = silent
) -> WorkloadCounts:
    """Run transactions with concurrent writers. Each writer uses its own connection.

    `source` is a DSN or a function that opens a connection. The business tables and the outbox table must exist.
    Existing rows can also be changed. If a writer fails, the other writers stop and its error is raised.
    """
    open_connection = partial(connect, source) if isinstance(source, str) else source
    with closing(open_connection()) as connection:
        shared_ids = SharedIds.load(connection)
    transactions_per_writer = [transactions // writers + (index < transactions % writers) for index in range(writers)]
    tally = Tally()
    started = time.monotonic()
    with ThreadPoolExecutor(writers, thread_name_prefix="writer") as pool:
        futures = [
            pool.submit(_run_writer, open_connection, Random(f"{seed}/{index}"), count, shared_ids, tally)  # noqa: S311
            for index, count in enumerate(transactions_per_writer)
        ]
        _wait_for_writers(futures, tally, transactions, progress)
    return tally.counts(time.monotonic() - started)


def write_invalid_events(connection: psycopg.Connection[Any]) -> list[OutboxEvent]:
    """Commit two events that must become dead letters: one with an invalid payload, one with an unknown type.

    These events do not have business rows, so source and target tables can still be compared.
    """
    book_id, magazine_id = str(uuid4()), str(uuid4())
    events = [
        OutboxEvent(
            aggregate_type="book",
            aggregate_id=book_id,
            event_type="book_added",
            payload={"id": book_id, "title": 42, "status": "BURNT"},
        ),
        OutboxEvent(
            aggregate_type="magazine",
            aggregate_id=magazine_id,
            event_type="magazine_added",
            payload={"id": magazine_id, "title": "no schema has been declared for magazines"},
        ),
    ]
    with connection.transaction():
        emit_many(connection, events)
    return events


def _wait_for_writers(futures: list[Future[None]], tally: Tally, transactions: int, progress: Reporter) -> None:
    """Report progress once per second in the calling thread. After an error, stop all writers and raise the error."""
    running_futures = set(futures)
    while running_futures:
        done_futures, running_futures = wait(running_futures, timeout=1, return_when=FIRST_EXCEPTION)
        progress(f"{tally.finished_count} of {transactions} transactions")
        if any(future.exception() for future in done_futures):
            tally.stop.set()
    for future in futures:
        future.result()


def _run_writer(connect: Connect, rng: Random, transactions: int, shared_ids: SharedIds, tally: Tally) -> None:
    with closing(connect()) as connection:
        writer = Writer(connection, rng, shared_ids)
        for _ in range(transactions):
            if tally.stop.is_set():
                return
            tally.add(*writer.transact())


class Tally:
    """Counts of the transactions and events of all writers, and the flag `stop`, which ends the writers."""

    def __init__(self) -> None:
        self.stop = Event()
        self._lock = Lock()
        self._states: Counter[str] = Counter()
        self._tombstones: Counter[str] = Counter()
        self._committed = self._rolled_back = self._savepoint_rollbacks = 0

    @property
    def finished_count(self) -> int:
        return self._committed + self._rolled_back

    def add(self, effects: Effects, is_committed: bool) -> None:
        with self._lock:
            if not is_committed:
                self._rolled_back += 1
                return
            self._committed += 1
            self._savepoint_rollbacks += effects.savepoint_rollbacks
            self._states += effects.states
            self._tombstones += effects.tombstones

    def counts(self, seconds: float) -> WorkloadCounts:
        """Return the counts of a run that took `seconds`."""
        event_counts = self._states + self._tombstones
        return WorkloadCounts(
            committed=self._committed,
            rolled_back=self._rolled_back,
            savepoints_rolled_back=self._savepoint_rollbacks,
            events=event_counts.total(),
            tombstones=self._tombstones.total(),
            events_by_aggregate=dict(sorted(event_counts.items())),
            seconds=round(seconds, 3),
        )
