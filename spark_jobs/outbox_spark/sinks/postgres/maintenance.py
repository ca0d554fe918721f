"""VACUUM of the tables of a PostgreSQL target."""

from __future__ import annotations

from psycopg.sql import SQL, Identifier

from outbox_spark.sinks.postgres.catalog import count_dead_rows
from outbox_spark.sinks.postgres.connection import Connection


def vacuum(connection: Connection, table: Identifier) -> str:
    """Vacuum and analyze a table; return a text with the numbers of dead rows before and after.

    Rows that an open transaction may still read remain until the next VACUUM.
    """
    count_before = count_dead_rows(connection, table)
    # The connection is in autocommit mode, because VACUUM cannot run in a transaction.
    connection.execute(SQL("vacuum (analyze) {}").format(table))
    return f"{table.as_string(connection)}: {count_before} dead rows before, {count_dead_rows(connection, table)} after"
