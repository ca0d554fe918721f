"""Business transaction on a psycopg connection of the caller: begin, commit, rollback, and the order of its commit.

A process that has been fenced can still be between the delivery of its records and its commits. If the recovery read
before it continues, its transaction would be left as it is until the next recovery. Each business transaction therefore
holds a shared advisory lock of its sender from before its first record. A transaction that begins after the fence
cannot deliver a record, so the recovery only needs to wait for the locks that are held then.
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
# PREPARE TRANSACTION keeps the lock, without a process.
HOLDERS = (
    "select pid from pg_locks where locktype = 'advisory' and objsubid = 1 and pid is not null and pid <> "
    "pg_backend_pid() and database = (select oid from pg_database where datname = current_database()) "
    "and (classid::bigint << 32 | objid::bigint) = hashtextextended(%s::text, 0) order by pid"
)
HINT = "end these sessions, for example with pg_terminate_backend, or the process that holds them"
Order = Literal["database-first", "kafka-first"]
ORDERS = ("database-first", "kafka-first")


def require_idle(connection: Connection) -> None:
    """Raise RefusedError unless the connection can begin a transaction of its own."""
    if connection.autocommit:
        raise RefusedError("the psycopg connection is in autocommit mode", "connect with autocommit=False")
    status = connection.info.transaction_status
    if status != TransactionStatus.IDLE:
        message = f"the psycopg connection is not idle: {status.name}"
        raise RefusedError(message, "commit before, or use a second connection for an independent transaction")


def require_committable(connection: Connection) -> None:
    """Raise RefusedError for a failed transaction: the server would answer COMMIT with a rollback, without an error."""
    status = connection.info.transaction_status
    if status not in (TransactionStatus.INTRANS, TransactionStatus.IDLE):
        message = f"the database transaction cannot commit: its status is {status.name}"
        raise RefusedError(message, "let the exception of a failed statement leave the block")


def commit(connection: Connection) -> None:
    """Commit the transaction. Raises RefusedError for a failed transaction.

    After an OperationalError the outcome is unknown: the server may have committed before the connection was lost.
    """
    require_committable(connection)
    connection.commit()


def roll_back(connection: Connection) -> None:
    """Roll back. A lost connection is not an error, because the server rolls back when it notices."""
    with suppress(psycopg.OperationalError):
        connection.rollback()


@contextmanager
def rolled_back_on_error(connection: Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        roll_back(connection)
        raise


def begin(connection: Connection, sender: str) -> str:
    """Begin a transaction that a recovery of the sender waits for, in one round trip; return its xid."""
    query = "select pg_current_xact_id()::text, pg_advisory_xact_lock_shared(hashtextextended(%s::text, 0))"
    # In pipeline mode, BEGIN and this statement are one round trip.
    with connection.pipeline(), psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(query, [sender])
        return str(cursor.fetchall()[0][0])


def wait_until_ended(connection: Connection, sender: str, *, seconds: float) -> None:
    """Wait until no transaction of the sender is open. Raises WaitTimeoutError, which names the processes, after that.

    A prepared transaction is not open. The connection may be in a transaction.
    """

    def poll() -> Observation[bool]:
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            processes = [str(pid) for (pid,) in cursor.execute(HOLDERS, [sender]).fetchall()]
        return Observation(not processes or None, f"sessions of the server: {', '.join(processes)}")

    wait_for(f"the end of the business transactions of {sender}", poll, seconds=seconds, hint=HINT)


def require_order(order: Order) -> Order:
    """Return the order. Raises ConfigurationError for an unknown one."""
    if order not in ORDERS:
        raise ConfigurationError(f"unknown order {order!r}", f"use one of {', '.join(ORDERS)}")
    return order
