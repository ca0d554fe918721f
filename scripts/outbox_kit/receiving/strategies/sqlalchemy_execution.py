"""Statements through SQLAlchemy 2. An optional dependency: imported only for its connections and sessions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session, scoped_session

from outbox_kit.errors import RefusedError


def execute(
    bind: Connection | Session | scoped_session[Any], statement: str, table: str, values: dict[str, object]
) -> list[tuple[Any, ...]]:
    """Execute a statement; return its rows. Raises RefusedError for isolation level AUTOCOMMIT."""
    connection = bind if isinstance(bind, Connection) else bind.connection()
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        message = "the SQLAlchemy connection has the isolation level AUTOCOMMIT"
        raise RefusedError(message, "use a connection or session with a transactional isolation level")
    quote = connection.dialect.identifier_preparer.quote
    quoted = ".".join(quote(part) for part in table.split("."))
    parameters = {name: f":{name}" for name in values}
    result = connection.execute(text(statement.format(table=quoted, **parameters)), values)
    return [tuple(row) for row in result] if result.returns_rows else []
