"""Run transactions and statements through SQLAlchemy 2. Import this module only if SQLAlchemy objects are passed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event, text
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, scoped_session

from outbox_events.errors import ConfigurationError, RefusedError, RejectedError
from outbox_events.receiving.retries import needs_connection

ENDED_HINT = "use `with session.begin_nested():` for statements that may fail"
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


@contextmanager
def committed(session: Session, first_statement: str, values: dict[str, str]) -> Iterator[Session]:
    """Run the block in a transaction, ensure that its effects are committed at the end, and close the session.

    `first_statement` is executed once on each connection of the session's pool, until it is committed.

    Raises RejectedError if a handler commits or rolls back, also by a statement, which would separate its effects from
    the effects of the other events.
    """
    is_complete = False

    def refuse(session: Session) -> None:
        # SQLAlchemy also calls this function when a savepoint is released.
        if not is_complete and not session.in_nested_transaction():
            raise RejectedError("a handler called commit(), but only the receiver may commit", ENDED_HINT)

    event.listen(session, "before_commit", refuse)
    try:
        with session, session.begin() as transaction:
            try:
                connection_info = session.connection().info  # kept by the pool
                if "outbox_events" not in connection_info:
                    session.execute(text(first_statement), values)
                with _without_end(session.connection()):
                    yield session
                if not transaction.is_active:
                    raise RejectedError("a handler ended the transaction of the receiver", ENDED_HINT)
                # Fails if a handler ignored an error, because COMMIT would silently roll back.
                session.execute(text("select 1"))
            except Exception as error:
                if needs_connection(error):
                    session.invalidate()  # after a failover, its server might be read-only permanently
                raise
            is_complete = True
        connection_info["outbox_events"] = True
    finally:
        event.remove(session, "before_commit", refuse)  # `connect` can return the same session again


@contextmanager
def _without_end(connection: Connection) -> Iterator[None]:
    """Raise RejectedError before a statement that would end the transaction."""

    def refuse(*arguments: Any) -> None:  # noqa: ANN401 - connection, cursor, statement and others
        if ENDS_TRANSACTION.match(arguments[2]):
            raise RejectedError("a handler executed a statement that ends the transaction", ENDED_HINT)

    event.listen(connection, "before_cursor_execute", refuse)
    try:
        yield
    finally:
        event.remove(connection, "before_cursor_execute", refuse)


def execute(
    bind: Connection | Session | scoped_session[Any], statement: str, table: str, values: dict[str, object]
) -> list[tuple[Any, ...]]:
    """Execute a statement, and return its rows. Raises RefusedError for isolation level AUTOCOMMIT."""
    connection = bind if isinstance(bind, Connection) else bind.connection()
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        message = "the SQLAlchemy connection has the isolation level AUTOCOMMIT"
        raise RefusedError(message, "use a connection or session with an isolation level other than AUTOCOMMIT")
    quote = connection.dialect.identifier_preparer.quote
    quoted = ".".join(quote(part) for part in table.split("."))
    parameters = {name: f":{name}" for name in values}
    result = connection.execute(text(statement.format(table=quoted, **parameters)), values)
    return [tuple(row) for row in result] if result.returns_rows else []
