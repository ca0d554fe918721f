"""INSERT of outbox rows through a psycopg 3 connection."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, sql
from psycopg.pq import TransactionStatus

from outbox_kit.errors import RefusedError
from outbox_kit.sending.event import Row, TableName


def insert_rows(connection: Connection[Any], rows: Sequence[Row], table: TableName) -> None:
    """Insert rows in the connection's transaction. Raises RefusedError if each row would be committed on its own."""
    refuse_autocommit(connection)
    # The connection's cursor_factory could create server-side cursors, or cursors that expect $1 parameters.
    with Cursor(connection) as cursor:
        if len(rows) == 1:
            cursor.execute(insert_statement(table), rows[0])
        else:
            cursor.executemany(insert_statement(table), rows)


async def insert_rows_async(connection: AsyncConnection[Any], rows: Sequence[Row], table: TableName) -> None:
    """Insert rows as `insert_rows` does, through an AsyncConnection."""
    refuse_autocommit(connection)
    async with AsyncCursor(connection) as cursor:
        if len(rows) == 1:
            await cursor.execute(insert_statement(table), rows[0])
        else:
            await cursor.executemany(insert_statement(table), rows)


def refuse_autocommit(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Raise RefusedError if a statement would be committed on its own: autocommit without an open transaction.

    In pipeline mode a transaction is also refused if the server has not yet responded to its BEGIN.
    """
    in_transaction = connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)
    if connection.autocommit and not in_transaction:
        raise RefusedError(
            "the psycopg connection is in autocommit mode and no transaction is open: "
            "the outbox row would be committed separately from the business rows",
            "write the outbox row and the business rows in a block of `connection.transaction()`",
        )


@lru_cache(maxsize=64)
def insert_statement(table: TableName) -> sql.Composed:
    """Return the INSERT. Its named parameters are cast, because a connection may send them with type text."""
    names = [table.name] if table.schema is None else [table.schema, table.name]
    return sql.SQL(
        "insert into {} (id, aggregate_type, aggregate_id, event_type, payload, headers) values"
        " (%(id)s::uuid, %(aggregate_type)s::text, %(aggregate_id)s::text, %(event_type)s::text,"
        " %(payload)s::jsonb, %(headers)s::jsonb)"
    ).format(sql.Identifier(*names))
