"""Store each backfill's progress in the table outbox_backfill, in the transactions that write outbox rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import sql

from outbox_kit.pipeline import Pipeline
from outbox_kit.postgres.client import Connection

TABLE_NAME = "outbox_backfill"


@dataclass(frozen=True)
class BackfillProgress:
    """Progress of one backfill: the last key read, the numbers of written and skipped aggregates, and the end time."""

    last_key: str | None
    row_count: int
    skipped_count: int
    finished_at: datetime | None


@dataclass(frozen=True)
class ProgressTable:
    """Accesses the row for one pipeline and aggregate type. Every method must be called in an open transaction."""

    pipeline: Pipeline
    aggregate_type: str

    def create(self, connection: Connection) -> None:
        """Create the table if it does not exist.

        The method first looks up the table, because `create table if not exists` always requires the CREATE privilege.
        """
        row = connection.execute("select to_regclass(%s) as oid", (self._table.as_string(),)).fetchone()
        if row and row["oid"] is not None:
            return
        connection.execute(
            sql.SQL("""
                create table if not exists {} (
                  pipeline       text not null,
                  aggregate_type text not null,
                  last_key       text,
                  rows           bigint not null default 0,
                  skipped        bigint not null default 0,
                  started_at     timestamptz not null default clock_timestamp(),
                  finished_at    timestamptz,
                  primary key (pipeline, aggregate_type))
            """).format(self._table)
        )

    def begin(self, connection: Connection, *, restart: bool) -> BackfillProgress:
        """Insert the row if it does not exist, and return its progress. With `restart`, delete the stored row first."""
        key = (self.pipeline.name, self.aggregate_type)
        if restart:
            deletion = sql.SQL("delete from {} where pipeline = %s and aggregate_type = %s").format(self._table)
            connection.execute(deletion, key)
        insertion = sql.SQL("insert into {} (pipeline, aggregate_type) values (%s, %s) on conflict do nothing")
        connection.execute(insertion.format(self._table), key)
        return self.lock(connection)

    def lock(self, connection: Connection) -> BackfillProgress:
        """Lock the row and return its progress. Concurrent backfills of the aggregate type wait for this lock."""
        query = sql.SQL(
            "select last_key, rows as row_count, skipped as skipped_count, finished_at from {}"
            " where pipeline = %s and aggregate_type = %s for update"
        ).format(self._table)
        return BackfillProgress(**connection.execute(query, (self.pipeline.name, self.aggregate_type)).fetchall()[0])

    def advance(self, connection: Connection, last_key: str, *, row_count: int, skipped_count: int) -> None:
        """Store the last key of a batch, and add the counts of the batch to the stored counts."""
        assignments = sql.SQL("last_key = %s, rows = rows + %s, skipped = skipped + %s")
        self._update(connection, assignments, last_key, row_count, skipped_count)

    def finish(self, connection: Connection) -> None:
        self._update(connection, sql.SQL("finished_at = clock_timestamp()"))

    def _update(self, connection: Connection, assignments: sql.SQL, *values: object) -> None:
        update = sql.SQL("update {} set {} where pipeline = %s and aggregate_type = %s")
        connection.execute(update.format(self._table, assignments), (*values, self.pipeline.name, self.aggregate_type))

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self.pipeline.source.table.split(".")[0], TABLE_NAME)
