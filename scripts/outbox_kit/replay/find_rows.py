"""Outbox rows of dead letters, and the rows of their aggregates."""

from __future__ import annotations

from collections.abc import Collection
from typing import LiteralString
from uuid import UUID

from psycopg import sql
from psycopg.rows import class_row

from outbox_kit.dead_letters.dead_letter import DeadLetter
from outbox_kit.dead_letters.dead_letter_topic import StoredLetter
from outbox_kit.pipeline import Source
from outbox_kit.postgres import ddl
from outbox_kit.postgres.aggregate_queries import BY_SEQ, BY_TRANSACTION
from outbox_kit.postgres.client import Connection
from outbox_kit.pruning.outbox_rows import OutboxRow
from outbox_kit.recovery.resend_rows import has_seq

ROWS: LiteralString = """
    select {id}::text as id, {type} as aggregate_type, {key} as key, xmin::text as xid, age(xmin) as age,
           tableoid::bigint as table_oid, true as is_old
    from {table} where {condition} order by {order}"""


def is_uuid(text: str) -> bool:
    """Return whether the text can be the id of an outbox row."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def rows_of_events(connection: Connection, source: Source, letters: Collection[StoredLetter]) -> dict[str, OutboxRow]:
    """Return the rows of the dead letters by event id."""
    event_ids = [entry.letter.event_id for entry in letters if is_uuid(entry.letter.event_id)]
    rows = _rows(connection, source, sql.SQL("{id} = any(%s::uuid[])"), event_ids)
    return {row.id: row for row in rows}


def rows_of_aggregate(
    connection: Connection, source: Source, letter: DeadLetter, row: OutboxRow | None
) -> list[OutboxRow]:
    """Return the rows of the aggregate in insertion order. A row that is replayed in this transaction is included."""
    kind, key = (row.aggregate_type, row.key) if row else (letter.aggregate_type, letter.key)
    return _rows(connection, source, sql.SQL("{type} = %s and {key} = %s"), kind, key)


def _rows(connection: Connection, source: Source, condition: sql.SQL, *parameters: object) -> list[OutboxRow]:
    columns = source.columns
    names = {
        "id": sql.Identifier(columns.id),
        "type": sql.Identifier(columns.aggregate_type),
        "key": sql.Identifier(columns.aggregate_id),
    }
    query = sql.SQL(ROWS).format(
        **names,
        table=ddl.qualified_name(source.table),
        condition=condition.format(**names),
        order=sql.SQL(BY_SEQ if has_seq(connection, source) else BY_TRANSACTION),
    )
    with connection.cursor(row_factory=class_row(OutboxRow)) as cursor:
        return cursor.execute(query, parameters).fetchall()
