"""A connection that writes newest states: guarded, with bounded lock waits, READ COMMITTED."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from outbox_kit.backfill.lock_holders import Watch
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.plan import read_database
from outbox_kit.errors import RefusedError, RejectedError
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import state as postgres_state

LOCK_SECONDS = 10.0
STATEMENT_TIMEOUT_MS = 300_000
# PostgreSQL ends one of those who wait for each other; when it is us, nothing is lost by trying again.
DEADLOCK_ATTEMPTS = 5
AGAIN = "end that transaction, then run the same command again: what is committed is kept"


@dataclass(frozen=True)
class Session:
    """An open connection to the source database, and how long it waits for a lock, seconds."""

    deployment: Deployment
    connection: postgres_client.Connection
    lock_seconds: float

    @contextmanager
    def transaction(self, waits_for: str) -> Iterator[None]:
        """A transaction with bounded waits in which the slot is still there. Raises RejectedError, RefusedError.

        `waits_for` names what may be locked by others.
        """
        with Watch(self.deployment.environment.source, self.connection, every=self.lock_seconds / 3) as watch:
            try:
                with self.connection.transaction():
                    self._limit()
                    _refuse_lost_slot(self.connection, self.deployment.pipeline.source.slot)
                    yield
            except psycopg.errors.LockNotAvailable:
                message = f"waited {self.lock_seconds:g} s for a lock on {waits_for}; it is held by {watch.words}"
                raise RejectedError(message, AGAIN) from None

    def _limit(self) -> None:
        for name, limit in (("lock_timeout", self.lock_seconds * 1000), ("statement_timeout", STATEMENT_TIMEOUT_MS)):
            statement = sql.SQL("set local {} = {}").format(sql.Identifier(name), sql.Literal(round(limit)))
            self.connection.execute(statement)


@contextmanager
def open_session(deployment: Deployment, *, lock_seconds: float) -> Iterator[Session]:
    """Connect to the source database of a deployed pipeline. Raises RefusedError where rows would be lost."""
    refuse_messages(deployment)
    refuse_undeployed(deployment)
    with postgres_client.connected(deployment.environment.source) as connection:
        # A database may default to a snapshot per transaction, which would not see what the locks waited for.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        yield Session(deployment, connection, lock_seconds)


def refuse_messages(deployment: Deployment) -> None:
    """States are written as rows of an outbox table. Raises RefusedError for a pipeline that has none."""
    prefix = deployment.pipeline.source.message_prefix
    if prefix is not None:
        raise RefusedError(
            f"the events of pipeline {deployment.pipeline.name} are messages of prefix {prefix!r}: there is no outbox "
            "table to write states into",
            "let the service emit the states, in the transaction that locks their rows",
        )


def refuse_undeployed(deployment: Deployment) -> None:
    """The slot must be there, and be the lock file's: without it no row would ever reach a topic."""
    lock = deployment.lock()
    if lock is None or lock.source is None:
        message = f"pipeline {deployment.pipeline.name} is not deployed to {deployment.environment.name}"
        raise RefusedError(f"{message}: without its slot, the rows would reach no topic", "run `outbox apply` first")
    postgres_state.refuse_unsafe(deployment.pipeline, read_database(deployment), lock.source)


def despite_deadlocks() -> Retrying:
    """Runs a transaction again when PostgreSQL ended it to resolve a deadlock."""
    return Retrying(
        stop=stop_after_attempt(DEADLOCK_ATTEMPTS),
        retry=retry_if_exception_type(psycopg.errors.DeadlockDetected),
        reraise=True,
    )


def _refuse_lost_slot(connection: postgres_client.Connection, name: str) -> None:
    """Looked at in every transaction: a long backfill can itself fill the WAL up to max_slot_wal_keep_size."""
    slot = postgres_client.slot(connection, name)
    if slot is None or slot["wal_status"] in ("unreserved", "lost"):
        state = f"is {slot['wal_status']}" if slot else "is gone"
        raise RefusedError(
            f"slot {name!r} {state}: rows written now would be lost to the connector",
            "is the connector running? see postgres.slot of `outbox verify`",
        )
