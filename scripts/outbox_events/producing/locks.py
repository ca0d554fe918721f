"""Hold advisory locks, so that recoveries exclude one another, and no transaction sends while a recovery resends.

An advisory lock belongs to one database. The name of each lock contains the table and, for a recovery, the sender.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from outbox_events.errors import RefusedError
from outbox_events.producing.database import Connection
from outbox_events.waiting import Observation, wait_for

# New transactions of the senders wait behind the recovery's request, so there is a pause after each attempt.
PAUSE_S = 2.0
ATTEMPT = "set local lock_timeout = '2s'"
LOCK = "select pg_advisory_lock(hashtextextended(%s::text, 0))"
UNLOCK = "select pg_advisory_unlock(hashtextextended(%s::text, 0))"
LOCK_SHARED = sql.SQL("pg_advisory_xact_lock_shared(hashtextextended(%(sending_lock)s::text, 0))")
HINT = "wait until the other recovery or the open transactions have ended: see pg_locks and pg_stat_activity"


def recovery_lock(table: str, sender: str) -> str:
    """Return the name of the lock that a recovery of the sender holds."""
    return f"outbox-events recovery of {sender} in {table}"


def sending_lock(table: str) -> str:
    """Return the name of the lock that each sending transaction shares, and that excludes them during a resend."""
    return f"outbox-events sending with {table}"


@contextmanager
def locked(connection: Connection, name: str, *, seconds: float) -> Iterator[None]:
    """Hold an exclusive lock during a `with` block, without an open transaction. The connection must be idle.

    Raises WaitTimeoutError if the lock is not available within `seconds`, and RefusedError.
    """
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise RefusedError("the connection of the recovery has an open transaction", "commit it first")

    def poll() -> Observation[bool]:
        try:
            with connection.transaction():
                connection.execute(ATTEMPT)
                connection.execute(LOCK, [name])
        except psycopg.errors.LockNotAvailable:
            return Observation(None, "another session holds the lock")
        return Observation(True, "locked")

    wait_for(f"the lock {name!r}", poll, seconds=seconds, interval=PAUSE_S, hint=HINT)
    try:
        yield
    finally:
        with suppress(psycopg.OperationalError), connection.transaction():  # the end of the session releases it too
            connection.execute(UNLOCK, [name])
