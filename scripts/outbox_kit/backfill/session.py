"""Database session of backfill and republish: checks before it opens, lock and statement timeouts, READ COMMITTED."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from outbox_kit.backfill.lock_holders import LockMonitor
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError, RejectedError
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import state as postgres_state
from outbox_kit.postgres.replication_slot import read_slot

LOCK_SECONDS = 10.0
STATEMENT_TIMEOUT_MS = 300_000
# PostgreSQL aborts one of the transactions of a deadlock; repeating it loses nothing.
DEADLOCK_ATTEMPTS = 5


@dataclass(frozen=True)
class Session:
    """Open connection to the source database, and its lock timeout in seconds."""

    deployment: Deployment
    connection: postgres_client.Connection
    lock_seconds: float

    @contextmanager
    def transaction(self, locked: str) -> Iterator[None]:
        """Open a transaction with timeouts, and check that the slot exists. Raises RejectedError, RefusedError.

        `locked` names the objects that other sessions may lock.
        """
        database = self.deployment.environment.source
        with LockMonitor(database, self.connection, interval=self.lock_seconds / 3) as monitor:
            try:
                with self.connection.transaction():
                    self._set_timeouts()
                    self._refuse_lost_slot()
                    yield
            except psycopg.errors.LockNotAvailable:
                raise RejectedError(
                    f"no lock on {locked} within {self.lock_seconds:g} s; it is kept by {monitor.holders}",
                    "end that transaction, then run the same command again: committed batches are kept",
                ) from None

    def _set_timeouts(self) -> None:
        for name, limit in (("lock_timeout", self.lock_seconds * 1000), ("statement_timeout", STATEMENT_TIMEOUT_MS)):
            statement = sql.SQL("set local {} = {}").format(sql.Identifier(name), sql.Literal(round(limit)))
            self.connection.execute(statement)

    def _refuse_lost_slot(self) -> None:
        """Raise RefusedError if the slot is lost: a long backfill can itself exceed max_slot_wal_keep_size."""
        name = self.deployment.pipeline.source.slot
        slot = read_slot(self.connection, name)
        if slot is None or slot.wal_status in ("unreserved", "lost"):
            state = f"is {slot.wal_status}" if slot else "does not exist"
            raise RefusedError(
                f"slot {name!r} {state}: rows written now would be lost to the connector",
                "check that the connector is running; see postgres.slot of `outbox verify`",
            )


@contextmanager
def open_session(deployment: Deployment, *, lock_seconds: float) -> Iterator[Session]:
    """Connect to the source database of a deployed pipeline. Raises RefusedError if rows would be lost."""
    refuse_messages(deployment)
    refuse_undeployed(deployment)
    with postgres_client.connected(deployment.environment.source) as connection:
        # With a snapshot per transaction, changes committed while waiting for locks would not be visible.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        yield Session(deployment, connection, lock_seconds)


def refuse_messages(deployment: Deployment) -> None:
    """Raise RefusedError for a pipeline without an outbox table, to which states could be written."""
    source = deployment.pipeline.source
    if not source.uses_table:
        raise RefusedError(
            f"the events of pipeline {deployment.pipeline.name} are messages of prefix {source.message_prefix!r}: "
            "there is no outbox table to which states can be written",
            "let the service emit the states, in the transaction that locks their rows",
        )


def refuse_undeployed(deployment: Deployment) -> None:
    """Raise RefusedError if the slot is not that of the lock file: rows would not reach a topic."""
    lock = deployment.lock()
    if lock is None or lock.source is None:
        message = f"pipeline {deployment.pipeline.name} is not deployed to {deployment.environment.name}"
        raise RefusedError(f"{message}: without its slot, rows would reach no topic", "run `outbox apply` first")
    postgres_state.refuse_unsafe(deployment.pipeline, deployment.read_database(), lock.source)


def retry_deadlocks() -> Retrying:
    """Return a retry of transactions that PostgreSQL aborted because of a deadlock."""
    return Retrying(
        stop=stop_after_attempt(DEADLOCK_ATTEMPTS),
        retry=retry_if_exception_type(psycopg.errors.DeadlockDetected),
        reraise=True,
    )
