"""Run transactions and statements through SQLAlchemy 2. Import this module only if SQLAlchemy objects are passed."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import SQLAlchemyError, UnboundExecutionError
from sqlalchemy.orm import Session, scoped_session

from outbox_events.errors import ConfigurationError, UnreachableError
from outbox_events.producing.database import MARKED, READ_MARK, has_open_statement
from outbox_events.receiving.retries import needs_connection
from outbox_events.receiving.strategies.ended_transactions import (
    MARK_WITH_ID,
    READ_OUTCOME,
    StatementLeftOpenError,
    TransactionEndedError,
    refused,
)
from outbox_events.sending.sqlalchemy_writer import connection_of

log = logging.getLogger("outbox_events.receiving")
BLOCKING_HINT = "use psycopg, or call psycopg2.extensions.set_wait_callback(psycopg2.extras.wait_select)"
DRIVERS = ("psycopg", "psycopg2", "pg8000")
"""Drivers whose errors the reactions recognize."""
ENDS_TRANSACTION = re.compile(
    r"(\s|--[^\n]*\n|/\*.*?\*/)*(commit|end|abort|prepare\s+transaction|rollback(?!\s+((work|transaction)\s+)?to))\b",
    re.IGNORECASE | re.DOTALL,
)


def require_supported(session: object) -> None:
    """Raise ConfigurationError unless the object is a Session of an engine for PostgreSQL with one of DRIVERS."""
    hint = f"pass sessionmaker(create_engine('postgresql+DRIVER://...')), where DRIVER is one of {', '.join(DRIVERS)}"
    if not isinstance(session, Session):
        raise ConfigurationError(f"connect returned {type(session).__name__}, which is not a Session", hint)
    try:
        dialect = session.get_bind().dialect
    except UnboundExecutionError as error:
        raise ConfigurationError("the Session has no engine for statements without a mapped class", hint) from error
    if dialect.name != "postgresql" or dialect.driver not in DRIVERS:
        raise ConfigurationError(f"the Session uses {dialect.name}+{dialect.driver}", hint)


def warn_if_blocking(session: Session) -> None:
    """Warn about psycopg2, which does not return to Python while a statement waits, unless it has a wait callback."""
    extensions = sys.modules.get("psycopg2.extensions")
    if session.get_bind().dialect.driver == "psycopg2" and not (extensions and extensions.get_wait_callback()):
        log.warning("psycopg2 blocks signal handlers during a statement, so exit_s has no effect: %s", BLOCKING_HINT)


@contextmanager
def committed(session: Session, first_statement: str, values: dict[str, str]) -> Iterator[Session]:
    """Run the block in a transaction, ensure that its effects are committed at the end, and close the session.

    `first_statement` is executed once on each connection of the session's pool, until it is committed.

    Raises ReceiverStoppedError if a handler commits or rolls back, also by a statement, which would separate its
    effects from the effects of the other events.
    """
    transaction_id, is_handling = "", False
    try:
        with _transaction(session) as connection:
            connection_info = connection.info  # kept by the pool
            if "outbox_events" not in connection_info:
                session.execute(text(first_statement), values)
            _, transaction_id = session.execute(text(MARK_WITH_ID)).one()
            is_handling = True
            with _refused_end(session, connection):
                yield session
            if connection.invalidated:
                raise UnreachableError("the connection to the database was lost before COMMIT", "check the database")
            # Fails if a handler ignored an error, because COMMIT would silently roll back.
            if not _is_marked(session):
                raise TransactionEndedError
            is_handling = False
        connection_info["outbox_events"] = True
    except TransactionEndedError:
        raise
    except BaseException as error:
        if is_handling and _has_committed(session, transaction_id):
            raise TransactionEndedError from error
        raise


@contextmanager
def _transaction(session: Session) -> Iterator[Connection]:
    """Open a transaction and yield its connection. Raise TransactionEndedError if a handler has replaced it."""
    with session, session.begin() as transaction:
        connection = session.connection()
        try:
            yield connection
        except BaseException as error:
            is_blocked = _has_open_statement(connection)
            # A failed flush ends the transaction, too.
            is_ended = not is_blocked and transaction.is_active and _is_replaced(connection)
            # After a failover, its server might be read-only permanently. A handler might have changed its settings.
            if is_ended or is_blocked or needs_connection(error) or isinstance(error, TransactionEndedError):
                session.invalidate()
            if is_ended:
                raise TransactionEndedError from error
            raise


def _has_committed(session: Session, transaction_id: str) -> bool:
    """Return whether a handler has committed the transaction, which the mark does not show if it began another one.

    Returns False if the database cannot be reached.
    """
    try:
        with session, session.begin():
            outcome = session.execute(text(READ_OUTCOME.format(":id")), {"id": transaction_id}).scalar()
    except Exception:
        return False
    return outcome == "committed"


def check(session: Session) -> None:
    """Raise TransactionEndedError if a handler has ended the transaction, or has left a statement open."""
    try:
        connection = session.connection()
    except SQLAlchemyError:  # an error has ended the transaction of the session, which is reported at its end
        return
    if _has_open_statement(connection):
        raise StatementLeftOpenError
    if _is_idle(connection):
        raise TransactionEndedError


def _has_open_statement(connection: Connection) -> bool:
    """Return whether a statement was left open on the driver's connection, so that ROLLBACK would block."""
    driver = _driver_connection(connection)
    return isinstance(driver, psycopg.Connection) and has_open_statement(driver)


def _is_idle(connection: Connection) -> bool:
    """Return whether no transaction is open on the driver's connection. Only for pg8000, this sends a statement."""
    driver = _driver_connection(connection)
    if driver is None:
        return False
    if isinstance(driver, psycopg.Connection):
        return driver.info.transaction_status is TransactionStatus.IDLE
    status = getattr(driver, "get_transaction_status", None)  # psycopg2
    return _is_replaced(connection) if status is None else status() == TransactionStatus.IDLE


def _driver_connection(connection: Connection) -> object:
    return None if connection.closed or connection.invalidated else connection.connection.driver_connection


def _is_replaced(connection: Connection) -> bool:
    """Return whether a handler has begun the current transaction. If a statement fails, the transaction is aborted."""
    try:
        return not connection.closed and not _is_marked(connection)
    except SQLAlchemyError:
        return False


def _is_marked(bind: Session | Connection) -> bool:
    return [tuple(row) for row in bind.execute(text(READ_MARK))] == MARKED


@contextmanager
def _refused_end(session: Session, connection: Connection) -> Iterator[None]:
    """Refuse calls and statements that would end the transaction, on the session and on its connection."""
    # Rollbacks not with listeners, because SQLAlchemy itself rolls back after a flush has failed.
    with (
        refused(session, "rollback", "close", "reset") as refuse,
        refused(connection, "rollback", "close"),
        ExitStack() as listeners,
    ):
        for listener in _listeners(session, connection, refuse):
            event.listen(*listener)
            listeners.callback(event.remove, *listener)  # `connect` can return the same session again
        yield


def _listeners(
    session: Session, connection: Connection, refuse: Callable[..., NoReturn]
) -> list[tuple[object, str, Callable[..., None]]]:
    def refuse_commit(session: Session) -> None:
        if not session.in_nested_transaction():  # otherwise a savepoint is released
            refuse()

    def refuse_statement(*arguments: Any) -> None:  # noqa: ANN401 - connection, cursor, statement and others
        if ENDS_TRANSACTION.match(arguments[2]):
            refuse()

    return [
        (session, "before_commit", refuse_commit),
        (connection, "commit", refuse),
        (connection, "before_cursor_execute", refuse_statement),
    ]


def execute(
    bind: Connection | Session | scoped_session[Any], statement: str, table: str, values: dict[str, object]
) -> list[tuple[Any, ...]]:
    """Execute a statement, and return its rows. Raises RefusedError for isolation level AUTOCOMMIT."""
    connection = connection_of(bind)
    quote = connection.dialect.identifier_preparer.quote
    quoted = ".".join(quote(part) for part in table.split("."))
    parameters = {name: f":{name}" for name in values}
    result = connection.execute(text(statement.format(table=quoted, **parameters)), values)
    return [tuple(row) for row in result] if result.returns_rows else []
