"""Begin, commit and roll back business transactions on the caller's connection, and wait for other processes.

A fenced process might have delivered its records but not yet committed. If the recovery read the topic at this point,
it would leave the transaction unresolved until the next recovery. Therefore each business transaction takes a shared
advisory lock for its sender before it sends a record. Transactions that begin after the fence cannot deliver records,
so the recovery waits only for the locks that are held when it fences the producer.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Any, Literal

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from outbox_events.errors import ConfigurationError, RefusedError
from outbox_events.limited_calls import GRACE_S
from outbox_events.producing.errors import UnknownOutcomeError
from outbox_events.waiting import Observation, wait_for

Connection = psycopg.Connection[Any]
# A prepared transaction keeps the lock, but its entry in pg_locks has no pid.
HOLDERS = (
    "select pid from pg_locks where locktype = 'advisory' and objsubid = 1 and pid is not null and pid <> "
    "pg_backend_pid() and database = (select oid from pg_database where datname = current_database()) "
    "and (classid::bigint << 32 | objid::bigint) = hashtextextended(%s::text, 0) order by pid"
)
HINT = "end these sessions, for example with pg_terminate_backend, or end the process that opened them"
UNKNOWN_COMMIT_HINT = "open a new connection, then run the recovery or, without a recovery, read the changed rows"
Order = Literal["database-first", "kafka-first"]
LOST_SQLSTATES = ("08", "57P")
ORDERS = ("database-first", "kafka-first")


def require_idle(connection: Connection) -> None:
    """Raise RefusedError unless the connection is idle and not in autocommit mode."""
    if connection.autocommit:
        raise RefusedError("the psycopg connection is in autocommit mode", "connect with autocommit=False")
    status = connection.info.transaction_status
    if status != TransactionStatus.IDLE:
        message = f"the psycopg connection is not idle: {status.name}"
        raise RefusedError(message, "commit first, or use a second connection for an independent transaction")


def commit(connection: Connection, kafka: str = "", *, seconds: float) -> None:
    """Commit the transaction. Raises UnknownOutcomeError if the connection is lost or the server does not respond.

    `kafka` describes the Kafka transaction in the message of this error.
    """
    try:
        with limited(connection, seconds):
            connection.commit()
    except psycopg.Error as error:
        if not is_lost(error):
            raise
        message = "the connection was lost in COMMIT, so it is unknown whether the database transaction committed"
        raise UnknownOutcomeError("; ".join(filter(None, [message, kafka])), UNKNOWN_COMMIT_HINT) from error


def roll_back(connection: Connection) -> None:
    """Roll back the transaction. A lost connection is not an error, because the server then rolls back by itself."""
    with suppress(psycopg.OperationalError), limited(connection, GRACE_S):
        connection.rollback()


def is_lost(error: psycopg.Error) -> bool:
    """Return whether the error ended the connection. Without an SQLSTATE, psycopg raised it without a response."""
    is_ended = error.diag.severity_nonlocalized in ("FATAL", "PANIC")
    return is_ended or error.sqlstate is None or error.sqlstate.startswith(LOST_SQLSTATES)


@contextmanager
def limited(connection: Connection, seconds: float) -> Iterator[None]:
    """Shut down the connection after `seconds`, so that psycopg raises OperationalError in the block.

    If the server is frozen, its kernel still confirms packets, so neither keepalives nor tcp_user_timeout detect it.
    """
    with socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as duplicate:  # of any family
        timer = Timer(seconds, _shut_down, [duplicate])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join(GRACE_S)  # so that it does not use a descriptor that was closed


def _shut_down(duplicate: socket.socket) -> None:
    with suppress(OSError):  # the server has closed the connection
        duplicate.shutdown(socket.SHUT_RDWR)


def begin(connection: Connection, sender: str | None, sending_lock: str | None = None, *, seconds: float) -> str:
    """In one round trip, begin a transaction in autocommit mode.

    With `sender`, recoveries of this sender wait for the transaction, and its xid is returned, otherwise ''. A recovery
    that holds `sending_lock` while it resends delays the transaction. With None, no second lock is taken.
    """
    lock = "pg_advisory_xact_lock_shared(hashtextextended(%s::text, 0))"
    query = f"select pg_current_xact_id()::text, {lock}, {lock}"
    with (
        limited(connection, seconds),
        connection.pipeline(),
        psycopg.Cursor(connection, row_factory=tuple_row) as cursor,
    ):
        cursor.execute(_begin_statement(connection))
        if sender is None:
            return ""
        cursor.execute(query, [sender, sending_lock])
        return str(cursor.fetchall()[0][0])


def _begin_statement(connection: Connection) -> sql.SQL:
    """Return BEGIN with the settings of the connection, as psycopg sends it if it is not in autocommit mode."""
    level, read_only, deferrable = connection.isolation_level, connection.read_only, connection.deferrable
    options = [
        None if level is None else f"isolation level {level.name.replace('_', ' ')}",
        None if read_only is None else f"read {'only' if read_only else 'write'}",
        None if deferrable is None else f"{'' if deferrable else 'not '}deferrable",
    ]
    return sql.SQL(" ".join(["begin", *filter(None, options)]))


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
