"""Store the progress of PostgreSQL tables in `outbox_offsets`, which has one row per table.

The row also lists the columns that runs have created, because other columns belong to the users of the table.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from psycopg.sql import SQL
from psycopg.types.json import Jsonb

from outbox_spark.errors import ForeignTableError
from outbox_spark.jobs.model import TableProgress
from outbox_spark.sinks.postgres.catalog import relation_exists
from outbox_spark.sinks.postgres.connection import Connection, creation_lock, scalar
from outbox_spark.sinks.postgres.statements import OFFSETS_TABLE, TableStatements


def read_progress(connection: Connection, statements: TableStatements) -> tuple[int | None, TableProgress | None]:
    """Return (run number, progress). If the table was dropped, return the run number, but None for the progress.

    Raises RefusedError for a table without progress.
    """
    row = None
    if relation_exists(connection, statements.offsets):
        query = SQL("select run, progress from {} where table_name = %s").format(statements.offsets)
        row = connection.execute(query, (statements.table,)).fetchone()
    run, progress = row or (None, None)
    if not relation_exists(connection, statements.target):
        return run, None
    if progress is None:
        raise foreign_table_error(statements)
    return run, TableProgress.from_json(progress, f"the progress of {statements.label}")


def server_time(connection: Connection) -> datetime:
    """Return the time of the server's clock."""
    time: datetime = scalar(connection, "select clock_timestamp()")
    return time


def create_offsets_table(connection: Connection, statements: TableStatements) -> None:
    """Create `outbox_offsets` if it does not exist."""
    if relation_exists(connection, statements.offsets):
        return
    with creation_lock(connection, f"{statements.schema}.{OFFSETS_TABLE}"):
        connection.execute(statements.create_offsets())


def lock_run(connection: Connection, statements: TableStatements) -> int | None:
    """Lock the table's row in `outbox_offsets` until the transaction ends. Return its run number; None if missing."""
    query = SQL("select run from {} where table_name = %s for update").format(statements.offsets)
    run: int | None = scalar(connection, query, (statements.table,))
    return run


@dataclass(frozen=True)
class CreatedColumns:
    """Names of the columns that runs have created."""

    current: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    """Columns of fields that only earlier schemas had."""

    @property
    def all(self) -> frozenset[str]:
        return self.current | self.removed

    def followed_by(self, names: Collection[str]) -> CreatedColumns:
        """Return the columns after a run that writes the columns `names`."""
        return CreatedColumns(frozenset(names), self.all.difference(names))


def created_columns(connection: Connection, statements: TableStatements) -> CreatedColumns:
    """Return the columns that runs have created in a table that `committed()` has not refused."""
    query = SQL("select progress -> 'columns', progress -> 'removed_columns' from {} where table_name = %s")
    row = connection.execute(query.format(statements.offsets), (statements.table,)).fetchone()
    return CreatedColumns(*map(frozenset, row or ()))


def write_progress(
    connection: Connection, statements: TableStatements, progress: TableProgress, columns: CreatedColumns
) -> None:
    """Insert or update the table's row in `outbox_offsets`."""
    upsert = SQL(
        "insert into {} (table_name, run, progress) values (%s, %s, %s) on conflict (table_name) "
        "do update set run = excluded.run, progress = excluded.progress, committed_at = now()"
    ).format(statements.offsets)
    names = {"columns": sorted(columns.current), "removed_columns": sorted(columns.removed)}
    connection.execute(upsert, (statements.table, progress.run, Jsonb({**progress.to_json(), **names})))


def delete_progress(connection: Connection, statements: TableStatements) -> None:
    """Delete the table's row in `outbox_offsets`, if it exists."""
    if relation_exists(connection, statements.offsets):
        connection.execute(SQL("delete from {} where table_name = %s").format(statements.offsets), (statements.table,))


def foreign_table_error(statements: TableStatements) -> ForeignTableError:
    """Return the error for a table without progress, which outbox-materialize must not change."""
    subject = f"table {statements.label} has no row in {OFFSETS_TABLE}"
    message = f"{subject}: outbox-materialize did not create it, or the row was deleted"
    return ForeignTableError(message, "check the target and the table, or drop this table")
