"""Select rows of the outbox table by snapshot, events or aggregate, and delete rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from outbox_events.errors import RefusedError
from outbox_kit.pipeline import Source
from outbox_kit.postgres import ddl
from outbox_kit.postgres.aggregate_queries import BY_SEQ, BY_TRANSACTION, QUERY_TIMEOUT_S, refuse_row_security
from outbox_kit.postgres.client import Connection, read_column_types, read_insert_position

FETCH_ROWS = 10_000
# The first statement of the transaction determines its snapshot.
SNAPSHOT: LiteralString = "select pg_current_snapshot()"
ROWS: LiteralString = """
    select {id}::text as id, {type} as aggregate_type, {key} as key, xmin::text as xid, age(xmin) as age,
           tableoid::bigint as table_oid, {is_old} as is_old
    from {table} where {condition} order by {type} collate "C", {key} collate "C", {insertion_order}"""
# created_at is used only to limit the deletion. A row whose created_at is in the future is not old: its age is unknown.
IS_OLD: LiteralString = "coalesce({created_at} < now() - make_interval(secs => %s), false)"
OF_EVENTS: LiteralString = "{id} = any(%s::uuid[])"
OF_AGGREGATE: LiteralString = "{type} = %s and {key} = %s"
# A row that was updated or inserted again since the snapshot has another xmin.
DELETION: LiteralString = """
    delete from {table} as event using unnest(%s::uuid[], %s::text[]) as proven (id, xid)
    where event.{id} = proven.id and event.xmin::text = proven.xid"""
OTHER_DELETES: LiteralString = """
    select p.pubname as name from pg_publication p join pg_publication_tables t using (pubname)
    where p.pubdelete and p.pubname <> %(publication)s
      and t.schemaname || '.' || t.tablename = %(table)s order by 1"""


@dataclass(frozen=True, slots=True)
class StoredRow:
    """Identity of an outbox row. `xid` identifies the transaction that inserted the row; `age` is age(xmin).

    `table_oid` identifies the partition, or the table if it is not partitioned.
    """

    id: str
    aggregate_type: str
    key: str
    xid: str
    age: int
    table_oid: int
    is_old: bool


class OutboxSnapshot:
    """Rows that were visible at one point in time. `position` is a WAL position after the commits of all these rows."""

    def __init__(self, connection: Connection, source: Source, position: int) -> None:
        self.connection = connection
        self._source = source
        self.position = position

    def aggregates(self, *, older_than: float) -> Iterator[list[StoredRow]]:
        """Yield one list per aggregate, which contains its rows in insertion order. Aggregates are sorted by type.

        A row is old if its created_at is more than `older_than` seconds ago.
        """
        with self.connection.cursor("outbox_rows", row_factory=class_row(StoredRow)) as cursor:
            cursor.itersize = FETCH_ROWS
            cursor.execute(_query(self.connection, self._source, is_old=IS_OLD), (older_than,))
            for _, rows in groupby(cursor, lambda row: (row.aggregate_type, row.key)):
                yield list(rows)


@contextmanager
def open_snapshot(connection: Connection, source: Source) -> Iterator[OutboxSnapshot]:
    """Take a snapshot in a transaction of `connection`. Inside the context, use `connection` only for the snapshot.

    Raises RefusedError on a standby.
    """
    connection.isolation_level, connection.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
    with connection.transaction():
        connection.execute(SNAPSHOT)
        position = read_insert_position(connection)
        if position is None:
            raise RefusedError("the database is a standby", "set source.host to the host of the primary")
        connection.execute(sql.SQL("set local statement_timeout = {}").format(QUERY_TIMEOUT_S * 1000))
        # The session is idle while the caller waits for the slot and reads topics.
        connection.execute("set local idle_in_transaction_session_timeout = 0")
        refuse_row_security(connection)  # a hidden row can be the newest one of its aggregate
        yield OutboxSnapshot(connection, source, position)


def select_rows(
    connection: Connection, source: Source, condition: LiteralString, *parameters: object
) -> list[StoredRow]:
    """Return the rows that the condition selects, in the order in which OutboxSnapshot.aggregates() yields rows.

    `is_old` is true for all of these rows.
    """
    with connection.cursor(row_factory=class_row(StoredRow)) as cursor:
        return cursor.execute(_query(connection, source, condition=condition), parameters).fetchall()


def has_seq(connection: Connection, source: Source) -> bool:
    return "seq" in read_column_types(connection, source.table)


def _query(
    connection: Connection, source: Source, *, condition: LiteralString = "true", is_old: LiteralString = "true"
) -> sql.Composed:
    columns = source.columns
    fields = {"id": columns.id, "type": columns.aggregate_type, "key": columns.aggregate_id}
    names = {name: sql.Identifier(column) for name, column in fields.items()}
    return sql.SQL(ROWS).format(
        **names,
        is_old=sql.SQL(is_old).format(created_at=sql.Identifier(columns.created_at)),
        table=ddl.qualified_name(source.table),
        condition=sql.SQL(condition).format(**names),
        insertion_order=sql.SQL(BY_SEQ if has_seq(connection, source) else BY_TRANSACTION),
    )


def delete_rows(connection: Connection, source: Source, rows: Sequence[StoredRow]) -> int:
    """Delete rows in one transaction, and return their number. Rows that have changed since the snapshot remain."""
    deletion = sql.SQL(DELETION).format(table=ddl.qualified_name(source.table), id=sql.Identifier(source.columns.id))
    return connection.execute(deletion, ([row.id for row in rows], [row.xid for row in rows])).rowcount


def publications_of_deletes(connection: Connection, source: Source) -> list[str]:
    """Return the sorted names of the other publications that publish the deletes of outbox rows."""
    parameters = {"publication": source.publication, "table": source.table}
    return [row["name"] for row in connection.execute(OTHER_DELETES, parameters)]
