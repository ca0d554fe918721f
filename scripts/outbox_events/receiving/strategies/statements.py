"""Statements with named parameters, through psycopg or SQLAlchemy."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from outbox_events.errors import ConfigurationError
from outbox_events.sending.psycopg_writer import refuse_autocommit

if TYPE_CHECKING:
    import sqlalchemy.orm

    SyncConnection: TypeAlias = psycopg.Connection[Any] | sqlalchemy.Connection | sqlalchemy.orm.Session


def execute(connection: SyncConnection, statement: str, table: str, **values: object) -> list[tuple[Any, ...]]:
    """Execute a statement with named parameters through psycopg or SQLAlchemy; return its rows."""
    if isinstance(connection, psycopg.Connection):
        refuse_autocommit(connection)
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(composed(statement, table, tuple(values)), values)
            return cursor.fetchall() if cursor.description else []
    if type(connection).__module__.startswith("sqlalchemy."):
        from outbox_events.receiving.strategies import sqlalchemy_execution  # noqa: PLC0415 - an optional dependency

        return sqlalchemy_execution.execute(connection, statement, table, values)
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise ConfigurationError(
        f"cannot use {kind}", "pass a psycopg 3 Connection, or a SQLAlchemy 2 Connection or Session"
    )


@lru_cache(maxsize=64)
def composed(statement: str, table: str, names: tuple[str, ...]) -> sql.Composed:
    """Return a statement of psycopg with the table and with a parameter for each name."""
    placeholders = {name: sql.Placeholder(name) for name in names}
    return sql.SQL(statement).format(table=sql.Identifier(*table.split(".")), **placeholders)
