"""Insert outbox rows through SQLAlchemy 2 with any of its PostgreSQL drivers.

This module is imported only when a service passes a SQLAlchemy object, because SQLAlchemy is an optional dependency.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Insert, Text, bindparam, cast, column, insert, quoted_name
from sqlalchemy import table as table_clause
from sqlalchemy.dialects.postgresql import JSONB, UUID
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.types import TypeEngine

from outbox_events.errors import ConfigurationError, RefusedError
from outbox_events.sending.event import Row
from outbox_events.sending.outbox_table import OutboxTable

TYPES: dict[str, TypeEngine[Any]] = {
    "id": UUID(),
    "aggregate_type": Text(),
    "aggregate_id": Text(),
    "event_type": Text(),
    "payload": JSONB(),
    "headers": JSONB(),
}


def connection_of(bind: Connection | Session | scoped_session[Any]) -> Connection:
    """Return the connection of a session, or the connection itself. Raises RefusedError for AUTOCOMMIT."""
    connection = bind if isinstance(bind, Connection) else bind.connection()
    # Ask the driver, because the isolation level can be set in the engine, the connection or create_engine().
    # Since Python 3.12, the default in sqlite3 is LEGACY_TRANSACTION_CONTROL, which is -1.
    if getattr(connection.connection.dbapi_connection, "autocommit", False) is True:
        raise RefusedError(
            "the SQLAlchemy connection has the isolation level AUTOCOMMIT: "
            "its rows would be committed separately from the business rows",
            "use a connection or session with an isolation level other than AUTOCOMMIT",
        )
    return connection


def insert_rows(
    bind: Connection | Session | scoped_session[Any],
    rows: Sequence[Row],
    table: OutboxTable,
    additional: tuple[str, ...],
) -> None:
    """Insert rows in the transaction of a Connection or Session. SQLAlchemy begins a transaction if none is open.

    A Session is flushed first, so that the transaction has locked the business rows when the outbox rows get their
    `seq`. Otherwise, the order of `seq` could differ from the order in which two transactions change an aggregate.
    Raises RefusedError for isolation level AUTOCOMMIT, and ConfigurationError if the database is not PostgreSQL.
    """
    connection = connection_of(bind)
    if connection.dialect.name != "postgresql":
        raise ConfigurationError(f"outbox rows need a connection to PostgreSQL, not to {connection.dialect.name}")
    if not isinstance(bind, Connection):
        session = bind() if isinstance(bind, scoped_session) else bind
        if not session._flushing:  # otherwise, a listener of its flush events is the caller: a flush cannot be nested
            session.flush()
    connection.execute(insert_statement(table, additional), list(rows))


@lru_cache(maxsize=64)
def insert_statement(table: OutboxTable, additional: tuple[str, ...]) -> Insert:
    """Return the INSERT statement. JSON is passed as text and cast, to bypass the engine's JSON serializer.

    Parameters of additional columns are named by position.
    """
    *schema, name = (quoted_name(part, quote=True) for part in table.parts)
    names = [quoted_name(column_name, quote=True) for column_name in (*map(table.column, TYPES), *additional)]
    clause = table_clause(name, *map(column, names), schema=next(iter(schema), None))
    values = [cast(bindparam(key, type_=Text), kind) for key, kind in TYPES.items()]
    parameters: list[Any] = [bindparam(str(position)) for position in range(len(additional))]
    return insert(clause).values(dict(zip(names, [*values, *parameters], strict=True)))
