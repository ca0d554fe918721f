"""How the kit itself writes rows into the outbox table: under the names that the pipeline file has for its columns."""

from __future__ import annotations

from psycopg import sql

from outbox_kit.pipeline import Source


def outbox_table(source: Source) -> sql.Identifier:
    """The outbox table, quoted."""
    return sql.Identifier(*source.table.split("."))


def insertion(source: Source, rows: sql.Composable, *further: str) -> sql.Composed:
    """INSERT of `rows` (VALUES or SELECT): id, aggregate type, aggregate id, event type, payload, `further` columns."""
    columns = source.columns
    names = [columns.id, columns.aggregate_type, columns.aggregate_id, columns.event_type, columns.payload, *further]
    return sql.SQL("insert into {outbox} ({names}) {rows}").format(
        outbox=outbox_table(source), names=sql.SQL(", ").join(map(sql.Identifier, names)), rows=rows
    )
