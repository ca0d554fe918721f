"""VACUUM of the tables of a PostgreSQL target."""

from __future__ import annotations

from psycopg.sql import SQL, Identifier

from outbox_spark.sinks.postgres.catalog import dead_rows
from outbox_spark.sinks.postgres.connection import Connection


def vacuum(connection: Connection, table: Identifier) -> str:
    """Vacuum and analyze a table; return the numbers of dead rows in the server's statistics.

    Rows that an open transaction may still read remain until the next VACUUM.
    """
    before = dead_rows(connection, table)
    # The connection is in autocommit mode, because VACUUM cannot run in a transaction.
    connection.execute(SQL("vacuum (analyze) {}").format(table))
    return f"{table.as_string(connection)}: {before} dead rows before, {dead_rows(connection, table)} after"
