"""Hold advisory locks, so that recoveries exclude one another, and no transaction sends while a recovery resends.

An advisory lock belongs to one database. The name of each lock contains the table and, for a recovery, the sender.

A fenced process might have delivered its records but not yet committed. If the recovery read the topic at this point,
it would leave the transaction unresolved until the next recovery. Therefore each business transaction takes a shared
lock with the name of its sender before it sends a record. Transactions that begin after the fence cannot deliver
records, so the recovery waits only for the locks that are held when it fences the producer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from psycopg.pq import TransactionStatus

from outbox_events.errors import RefusedError
from outbox_events.producing.database import Connection, rows_of
from outbox_events.waiting import Observation, wait_for

# New transactions of the senders wait behind the recovery's request, so there is a pause after each attempt.
PAUSE_S = 2.0
ATTEMPT = "set local lock_timeout = '2s'"
LOCK = "select pg_advisory_lock(hashtextextended(%s::text, 0))"
UNLOCK = "select pg_advisory_unlock(hashtextextended(%s::text, 0))"
LOCK_HINT = "wait until the other recovery or the open transactions have ended: see pg_locks and pg_stat_activity"
# A prepared transaction keeps the lock, but its entry in pg_locks has no pid.
HOLDERS = (
    "select pid from pg_locks where locktype = 'advisory' and objsubid = 1 and pid is not null and pid <> "
    "pg_backend_pid() and database = (select oid from pg_database where datname = current_database()) "
    "and (classid::bigint << 32 | objid::bigint) = hashtextextended(%s::text, 0) order by pid"
)
HOLDERS_HINT = "end these sessions, for example with pg_terminate_backend, or end the process that opened them"


def shared(parameter: str) -> str:
    """Return SQL that takes the lock whose name is in this parameter, and shares it, until the transaction ends."""
    return f"pg_advisory_xact_lock_shared(hashtextextended(%({parameter})s::text, 0))"


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

    wait_for(f"the lock {name!r}", poll, seconds=seconds, interval=PAUSE_S, hint=LOCK_HINT)
    try:
        yield
    finally:
        with suppress(psycopg.OperationalError), connection.transaction():  # the end of the session releases it too
            connection.execute(UNLOCK, [name])


def wait_until_ended(connection: Connection, sender: str, *, seconds: float) -> None:
    """Wait until no transaction of the sender is open. After `seconds`, raises WaitTimeoutError with the pids.

    A prepared transaction does not count as open. `connection` may be in a transaction.
    """

    def poll() -> Observation[bool]:
        processes = [str(pid) for (pid,) in rows_of(connection, HOLDERS, [sender])]
        return Observation(not processes or None, f"sessions of the server: {', '.join(processes)}")

    wait_for(f"the end of the business transactions of {sender}", poll, seconds=seconds, hint=HOLDERS_HINT)
