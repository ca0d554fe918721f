"""INSERT statement for rows that outbox-kit writes to the outbox table, with the pipeline's column names."""

from __future__ import annotations

from psycopg import sql

from outbox_kit.pipeline import Source
from outbox_kit.postgres import ddl


def insertion(source: Source, rows: sql.Composable, *further: str) -> sql.Composed:
    """INSERT `rows` (VALUES or SELECT): id, aggregate type, aggregate id, event type, payload, `further` columns."""
    columns = source.columns
    names = [columns.id, columns.aggregate_type, columns.aggregate_id, columns.event_type, columns.payload, *further]
    return sql.SQL("insert into {outbox} ({names}) {rows}").format(
        outbox=ddl.qualified(source.table), names=sql.SQL(", ").join(map(sql.Identifier, names)), rows=rows
    )
