"""Recovery store: records of chained transactions, saved in a database transaction of their own.

A row exists from before the first of the two commits until after the second, so a crash between them leaves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from outbox_events.errors import RefusedError
from outbox_events.kafka.record import Record
from outbox_events.producing import stored_record
from outbox_events.producing.database import Connection

DEFAULT_TABLE = "public.recovery_store"

# After a crash PostgreSQL assigns an xid again if nothing of its transaction had reached the disk. The xid of the
# business transaction is safe, because the transaction of this statement gets a later xid, and its commit flushes the
# WAL with that xid: after a crash, assignment continues behind it. This needs a commit that waits for the flush.
SAVE = sql.SQL(
    "insert into {table} (transaction_id, sender, {columns}) "
    "select %(transaction_id)s::text::xid8, %(sender)s::text, {columns} "
    "from {unnest} with ordinality as record(event_id, topic, partition, key, value, headers, number), "
    "set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'local' "
    "else current_setting('synchronous_commit') end, true) order by number"
)
READ = sql.SQL(
    "select position, transaction_id::text, topic, partition, key, value, headers from {table} "
    "where sender = %s::text order by position"
)
OUTCOMES = sql.SQL("select id::text, pg_xact_status(id) from unnest(%s::text[]::xid8[]) as id")


def create_table_sql(table: str = DEFAULT_TABLE) -> sql.Composed:
    """Return the statement that creates the table of the recovery store, if it does not exist."""
    return sql.SQL(
        "create table if not exists {} (position bigint generated always as identity primary key, "
        "transaction_id xid8 not null, sender text not null, event_id text not null, {}, "
        "unique (transaction_id, event_id))"
    ).format(stored_record.identifier(table), stored_record.COLUMN_DEFINITIONS)


@dataclass(frozen=True)
class SavedRecord:
    """One row: the record, its position in the order of sending, and the xid of the business transaction."""

    position: int
    transaction_id: str
    record: Record

    @property
    def event_id(self) -> str:
        return stored_record.event_id(self.record)


class RecoveryStore:
    """Table of saved records, through a connection of its own to the server of the business database.

    `sender` is the transactional.id of the producer: a recovery reads only the rows of the producer that it fences.
    """

    def __init__(self, connection: Connection, sender: str, table: str = DEFAULT_TABLE) -> None:
        """Raises RefusedError unless the connection is in autocommit mode, so that each statement is a transaction."""
        if not connection.autocommit:
            message = "the connection of the recovery store is not in autocommit mode"
            raise RefusedError(message, "open a separate connection with autocommit=True")
        self.connection = connection
        self.sender = sender
        self._table = stored_record.identifier(table)

    def save(self, transaction_id: str, records: Sequence[Record]) -> None:
        """Save the records of a business transaction, durably. Errors of psycopg must abort that transaction."""
        if self.connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            raise RefusedError("the connection of the recovery store has an open transaction", "commit it first")
        values = {"transaction_id": transaction_id, "sender": self.sender, **stored_record.parameters(records)}
        columns, unnest = stored_record.COLUMNS, stored_record.UNNEST
        self._execute(SAVE.format(table=self._table, columns=columns, unnest=unnest), values)

    def forget(self, transaction_id: str) -> None:
        """Delete the rows of a business transaction after both commits."""
        statement = sql.SQL("delete from {} where transaction_id = %s::text::xid8 and sender = %s::text")
        self._execute(statement.format(self._table), [transaction_id, self.sender])

    def forget_records(self, saved: Iterable[SavedRecord]) -> None:
        """Delete rows that the recovery has resolved."""
        statement = sql.SQL("delete from {} where position = any(%s::bigint[])")
        self._execute(statement.format(self._table), [[row.position for row in saved]])

    def read(self) -> list[SavedRecord]:
        """Return the rows of the sender, in the order of sending."""
        with psycopg.Cursor(self.connection, row_factory=tuple_row) as cursor:
            rows = cursor.execute(READ.format(table=self._table), [self.sender]).fetchall()
        return [SavedRecord(position, xid, stored_record.from_row(*columns)) for position, xid, *columns in rows]

    def outcomes(self, transaction_ids: Iterable[str]) -> dict[str, str | None]:
        """Return `in progress`, `committed` or `aborted` for each transaction.

        None means that the transaction is too old: PostgreSQL has removed its status.
        """
        with psycopg.Cursor(self.connection, row_factory=tuple_row) as cursor:
            return dict(cursor.execute(OUTCOMES, [sorted(set(transaction_ids))]).fetchall())

    def _execute(self, statement: sql.Composed, values: dict[str, Any] | list[Any]) -> None:
        with psycopg.Cursor(self.connection) as cursor:
            cursor.execute(statement, values)
