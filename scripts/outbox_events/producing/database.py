"""Commit and rollback of the business transaction on a psycopg connection of the caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from outbox_events.errors import RefusedError

Connection = psycopg.Connection[Any]


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
    """Roll back. A lost connection is no error, because the server rolls back when it notices."""
    with suppress(psycopg.OperationalError):
        connection.rollback()


@contextmanager
def rolled_back_on_error(connection: Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        roll_back(connection)
        raise
