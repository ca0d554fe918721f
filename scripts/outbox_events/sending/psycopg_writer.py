"""Insert outbox rows through a psycopg 3 connection."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, sql
from psycopg.pq import TransactionStatus

from outbox_events.errors import RefusedError
from outbox_events.sending.event import Row
from outbox_events.sending.outbox_table import COLUMNS, OutboxTable

TYPES = {"id": "uuid", "payload": "jsonb", "headers": "jsonb"}


def insert_rows(
    connection: Connection[Any], rows: Sequence[Row], table: OutboxTable, additional: tuple[str, ...]
) -> None:
    """Insert rows in the connection's transaction. Raises RefusedError if each row would be committed separately."""
    refuse_autocommit(connection)
    # The connection's cursor_factory could create server-side cursors, or cursors that expect $1 parameters.
    with Cursor(connection) as cursor:
        if len(rows) == 1:
            cursor.execute(insert_statement(table, additional), rows[0])
        else:
            cursor.executemany(insert_statement(table, additional), rows)


async def insert_rows_async(
    connection: AsyncConnection[Any], rows: Sequence[Row], table: OutboxTable, additional: tuple[str, ...]
) -> None:
    """Insert rows as `insert_rows` does, through an AsyncConnection."""
    refuse_autocommit(connection)
    async with AsyncCursor(connection) as cursor:
        if len(rows) == 1:
            await cursor.execute(insert_statement(table, additional), rows[0])
        else:
            await cursor.executemany(insert_statement(table, additional), rows)


def refuse_autocommit(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Raise RefusedError if each statement would commit separately (autocommit mode without an open transaction).

    In pipeline mode, a transaction is also refused if the server has not yet responded to its BEGIN.
    """
    in_transaction = connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)
    if connection.autocommit and not in_transaction:
        raise RefusedError(
            "the psycopg connection is in autocommit mode and no transaction is open: "
            "the outbox row would be committed separately from the business rows",
            "write the outbox row and the business rows in a block of `connection.transaction()`",
        )


@lru_cache(maxsize=64)
def insert_statement(table: OutboxTable, additional: tuple[str, ...]) -> sql.Composed:
    """Return the INSERT statement. Contract columns are cast, because a connection may send parameters as text.

    Parameters of additional columns are named by position. They are not cast, because their types are not known.
    """
    names = [*map(table.column, COLUMNS), *additional]
    values = [sql.SQL("{}::{}").format(sql.Placeholder(key), sql.SQL(TYPES.get(key, "text"))) for key in COLUMNS]
    values += [sql.SQL("{}").format(sql.Placeholder(str(position))) for position in range(len(additional))]
    return sql.SQL("insert into {} ({}) values ({})").format(
        sql.Identifier(*table.parts), sql.SQL(", ").join(map(sql.Identifier, names)), sql.SQL(", ").join(values)
    )
