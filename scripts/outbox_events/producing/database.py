"""Begin, commit and roll back business transactions on the caller's connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Any, Literal

import psycopg
from psycopg import sql
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from outbox_events.errors import ConfigurationError, RefusedError
from outbox_events.limited_calls import GRACE_S
from outbox_events.producing.errors import UnknownOutcomeError

Connection = psycopg.Connection[Any]
UNKNOWN_COMMIT_HINT = "open a new connection, then run the recovery or, without a recovery, read the changed rows"
Order = Literal["database-first", "kafka-first"]
LOST_SQLSTATES = ("08", "57P")
ORDERS = ("database-first", "kafka-first")
# A transaction that the block of a sender or a handler has begun lacks the setting, also after `commit and chain`.
MARK = "select set_config('outbox_events.transaction', 'open', true)"
READ_MARK = "select current_setting('outbox_events.transaction', true)"
MARKED = [("open",)]


def require_idle(connection: Connection) -> None:
    """Raise RefusedError unless the connection is idle and not in autocommit mode."""
    status = connection.info.transaction_status
    if status == TransactionStatus.UNKNOWN:
        raise RefusedError("the psycopg connection is closed or lost", "open a new connection")
    if connection.autocommit and status == TransactionStatus.IDLE:
        raise RefusedError("the psycopg connection is in autocommit mode", "connect with autocommit=False")
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
    """Roll back the transaction. A lost connection is not an error, because the server then rolls back by itself.

    The connection is closed if it cannot be used, for example because psycopg refuses ROLLBACK in a savepoint that was
    left open.
    """
    if has_open_statement(connection):
        connection.close()
        return
    try:
        with suppress(psycopg.OperationalError), limited(connection, GRACE_S):
            connection.rollback()
    except psycopg.ProgrammingError:
        connection.close()


@contextmanager
def rolling_back_transaction(
    connection: Connection, savepoint_name: str | None = None, force_rollback: bool = False
) -> Iterator[psycopg.Transaction]:
    """Open a transaction or savepoint of psycopg, which also rolls back after exceptions whose truth value is not true.

    psycopg would commit after an exception that is false, for example because its `__len__` returns 0, and would leave
    the transaction open if the truth value of the exception raises an error.
    """
    failure: BaseException | None = None
    try:
        # The method of the class, because a sender replaces that of its connection.
        with type(connection).transaction(connection, savepoint_name, force_rollback) as transaction:
            try:
                yield transaction
            except psycopg.Rollback as rollback:
                if _is_true(rollback):
                    raise
                raise psycopg.Rollback(getattr(rollback, "transaction", None)) from None
            except BaseException as error:
                failure = error
                raise psycopg.Rollback(transaction) from None
    except psycopg.Rollback:
        if failure is None:
            raise
    if failure is not None:
        raise failure


def _is_true(error: Exception) -> bool:
    """Return the truth value of the exception; False if it raises an error."""
    try:
        return bool(error)
    except Exception:
        return False


def has_open_statement(connection: Connection) -> bool:
    """Return whether a pipeline, COPY or stream of rows was left open, which would queue COMMIT or block ROLLBACK."""
    if connection.closed:
        return False
    in_pipeline = connection.pgconn.pipeline_status != PipelineStatus.OFF
    return in_pipeline or connection.info.transaction_status == TransactionStatus.ACTIVE


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


def rows_of(
    connection: Connection, statement: sql.Composable | str, values: Sequence[Any] | Mapping[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    """Execute a statement, and return its rows as tuples, whatever the connection's row_factory. It may return none."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(statement, values)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


def is_marked(connection: Connection) -> bool:
    """Return whether MARK was executed in the current transaction."""
    return rows_of(connection, READ_MARK, []) == MARKED


def require_order(order: Order) -> Order:
    """Return the order. Raises ConfigurationError if it is unknown."""
    if order not in ORDERS:
        raise ConfigurationError(f"unknown order {order!r}", f"use one of {', '.join(ORDERS)}")
    return order
