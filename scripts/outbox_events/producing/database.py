"""Begin, commit and roll back business transactions on the caller's connection, and wait for other processes.

A fenced process might have delivered its records but not yet committed. If the recovery read the topic at this point,
it would leave the transaction unresolved until the next recovery. Therefore each business transaction takes a shared
advisory lock for its sender before it sends a record. Transactions that begin after the fence cannot deliver records,
so the recovery waits only for the locks that are held when it fences the producer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from outbox_events.errors import ConfigurationError, RefusedError
from outbox_events.waiting import Observation, wait_for

Connection = psycopg.Connection[Any]
# A prepared transaction keeps the lock, but its entry in pg_locks has no pid.
HOLDERS = (
    "select pid from pg_locks where locktype = 'advisory' and objsubid = 1 and pid is not null and pid <> "
    "pg_backend_pid() and database = (select oid from pg_database where datname = current_database()) "
    "and (classid::bigint << 32 | objid::bigint) = hashtextextended(%s::text, 0) order by pid"
)
HINT = "end these sessions, for example with pg_terminate_backend, or end the process that opened them"
Order = Literal["database-first", "kafka-first"]
ORDERS = ("database-first", "kafka-first")


def require_idle(connection: Connection) -> None:
    """Raise RefusedError unless the connection is idle and not in autocommit mode."""
    if connection.autocommit:
        raise RefusedError("the psycopg connection is in autocommit mode", "connect with autocommit=False")
    status = connection.info.transaction_status
    if status != TransactionStatus.IDLE:
        message = f"the psycopg connection is not idle: {status.name}"
        raise RefusedError(message, "commit first, or use a second connection for an independent transaction")


def require_committable(connection: Connection) -> None:
    """Raise RefusedError for a failed transaction, because COMMIT would silently roll it back."""
    status = connection.info.transaction_status
    if status not in (TransactionStatus.INTRANS, TransactionStatus.IDLE):
        message = f"the database transaction cannot commit: its status is {status.name}"
        raise RefusedError(message, "do not catch the exception of a failed statement inside the block")


def commit(connection: Connection) -> None:
    """Commit the transaction. Raises RefusedError if a statement of the transaction has failed.

    After an OperationalError, the outcome is unknown: the server might have committed before the connection was lost.
    """
    require_committable(connection)
    connection.commit()


def roll_back(connection: Connection) -> None:
    """Roll back the transaction. A lost connection is not an error, because the server then rolls back by itself."""
    with suppress(psycopg.OperationalError):
        connection.rollback()


@contextmanager
def rolled_back_on_error(connection: Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        roll_back(connection)
        raise


def begin(connection: Connection, sender: str, sending_lock: str | None = None) -> str:
    """In one round trip, begin a transaction that the sender's recoveries wait for. Return the xid.

    A recovery that holds `sending_lock` while it resends delays the transaction. With None, no second lock is taken.
    """
    lock = "pg_advisory_xact_lock_shared(hashtextextended(%s::text, 0))"
    query = f"select pg_current_xact_id()::text, {lock}, {lock}"
    # In pipeline mode, BEGIN and this statement need only one round trip.
    with connection.pipeline(), psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(query, [sender, sending_lock])
        return str(cursor.fetchall()[0][0])


def wait_until_ended(connection: Connection, sender: str, *, seconds: float) -> None:
    """Wait until no transaction of the sender is open. After `seconds`, raises WaitTimeoutError with the pids.

    A prepared transaction does not count as open. `connection` may be in a transaction.
    """

    def poll() -> Observation[bool]:
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            processes = [str(pid) for (pid,) in cursor.execute(HOLDERS, [sender]).fetchall()]
        return Observation(not processes or None, f"sessions of the server: {', '.join(processes)}")

    wait_for(f"the end of the business transactions of {sender}", poll, seconds=seconds, hint=HINT)


def require_order(order: Order) -> Order:
    """Return the order. Raises ConfigurationError if it is unknown."""
    if order not in ORDERS:
        raise ConfigurationError(f"unknown order {order!r}", f"use one of {', '.join(ORDERS)}")
    return order
