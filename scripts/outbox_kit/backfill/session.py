"""Open the database session of backfill and republish, which limits waits for locks and the time of statements.

While a transaction waits for a lock, a second connection queries the sessions that block it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import LiteralString, TypeVar

import psycopg
from psycopg import sql

from outbox_events.errors import OutboxError, RefusedError, RejectedError
from outbox_kit.delivery.preconditions import require_table
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import Lock, SourceDatabase
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import state as postgres_state
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.postgres.replication_slot import read_slot
from outbox_kit.results import Reporter

T = TypeVar("T")
LOCK_TIMEOUT_S = 10.0
STATEMENT_TIMEOUT_MS = 300_000
# Maximum number of attempts for a transaction that PostgreSQL aborts because of a deadlock.
DEADLOCK_ATTEMPTS = 5
BLOCKING_SESSIONS_SQL: LiteralString = """
    select pid, coalesce(application_name, '') as application, coalesce(state, 'state not shown') as state,
           coalesce(extract(epoch from now() - xact_start), 0)::int as seconds
    from pg_stat_activity where pid = any(pg_blocking_pids(%s)) order by xact_start limit 3"""


class LockMonitor:
    """Every `interval` seconds, queries the sessions that block `connection`, until the context is left."""

    def __init__(self, database: SourceDatabase, connection: Connection, *, interval: float) -> None:
        self._database = database
        self._pid = connection.info.backend_pid
        self._interval = interval
        self._closed = Event()
        self._blocking_sessions: list[Row] = []
        self._thread = Thread(target=self._poll, name="lock-monitor", daemon=True)

    def __enter__(self) -> LockMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join(LOCK_TIMEOUT_S)  # the daemon thread can still be waiting for the server

    @property
    def description(self) -> str:
        """Text that names the blocking sessions, as of the latest poll in which `connection` was blocked."""
        return ", ".join(map(postgres_client.describe_session, self._blocking_sessions)) or "an unknown session"

    def _poll(self) -> None:
        try:
            while not self._closed.wait(self._interval):
                with postgres_client.connected(self._database) as connection:
                    self._blocking_sessions = (
                        connection.execute(BLOCKING_SESSIONS_SQL, (self._pid,)).fetchall() or self._blocking_sessions
                    )
        except OutboxError:
            return  # `description` is then outdated or empty; lock_timeout still limits the wait


@dataclass(frozen=True)
class Session:
    """A deployment, a connection to its source database, and the lock timeout of transactions in seconds."""

    deployment: Deployment
    connection: Connection
    lock_seconds: float

    @contextmanager
    def transaction(self, lock_target: str) -> Iterator[None]:
        """Open a transaction with lock and statement timeouts. Raises RefusedError if the slot is unusable.

        Raises RejectedError if a lock is not granted. `lock_target` names the locked rows or table in the message.
        """
        database = self.deployment.environment.source
        with LockMonitor(database, self.connection, interval=self.lock_seconds / 3) as monitor:
            try:
                with self.connection.transaction():
                    timeouts = {"lock_timeout": self.lock_seconds * 1000, "statement_timeout": STATEMENT_TIMEOUT_MS}
                    for name, limit in timeouts.items():
                        statement = sql.SQL("set local {} = {}").format(sql.Identifier(name), sql.Literal(round(limit)))
                        self.connection.execute(statement)
                    self._refuse_unusable_slot()
                    yield
            except psycopg.errors.LockNotAvailable:
                raise RejectedError(
                    f"no lock on {lock_target} within {self.lock_seconds:g} s: blocked by {monitor.description}",
                    "end the transaction of the blocking session, then run the command again",
                ) from None

    def _refuse_unusable_slot(self) -> None:
        """Raise RefusedError if the slot is missing or lost, or retains more WAL than max_slot_wal_keep_size."""
        name = self.deployment.pipeline.source.slot
        slot = read_slot(self.connection, name)
        if slot is None or slot.wal_status in ("unreserved", "lost"):
            state = f"is {slot.wal_status}" if slot else "does not exist"
            raise RefusedError(
                f"slot {name!r} {state}: the connector might never receive rows that are written now",
                "run `outbox verify` and follow the remedies of the checks postgres.slot and postgres.slot-wal",
            )


@contextmanager
def open_session(deployment: Deployment, aggregate_types: Iterable[str], *, lock_seconds: float) -> Iterator[Session]:
    """Connect to the source database, to write rows of these aggregate types.

    Raises RefusedError if the pipeline or a type is not deployed, or rows could be lost.
    """
    hint = "have the service emit the states as messages, in the transaction that locks the business rows"
    require_table(deployment.pipeline, hint)
    lock = deployment.lock()
    if lock is None or lock.source is None:
        message = f"pipeline {deployment.pipeline.name} is not deployed to {deployment.environment.name}"
        raise RefusedError(f"{message}: its outbox rows would not reach a topic", "run `outbox apply` first")
    _refuse_unapplied_types(deployment, lock, aggregate_types)
    postgres_state.refuse_unsafe(deployment.pipeline, deployment.read_database(), lock.source)
    with postgres_client.connected(deployment.environment.source) as connection:
        # A transaction-wide snapshot would hide changes that are committed while the transaction waits for a lock.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        yield Session(deployment, connection, lock_seconds)


def _refuse_unapplied_types(deployment: Deployment, lock: Lock, aggregate_types: Iterable[str]) -> None:
    """Raise RefusedError for a type whose rows the connector would send to the dead letter topic."""
    for name in aggregate_types:
        if name in deployment.pipeline.aggregates and deployment.pipeline.topic_of(name) not in lock.topics:
            message = f"aggregate type {name} of the pipeline file has not been applied: lock file "
            message += f"{deployment.lock_file} does not contain its topic"
            raise RefusedError(message, "run `outbox apply` first")


@contextmanager
def report_committed_batches(progress: Reporter) -> Iterator[None]:
    """If the body of the `with` statement is interrupted, report that the committed batches remain."""
    try:
        yield
    except KeyboardInterrupt:
        progress("committed batches remain in the outbox; to write the other aggregates, run the same command again")
        raise


def retry_deadlocks(action: Callable[[], T]) -> T:
    """Call `action`, and call it again if PostgreSQL reports a deadlock. Return its result."""
    for _ in range(DEADLOCK_ATTEMPTS - 1):
        with suppress(psycopg.errors.DeadlockDetected):
            return action()
    return action()
