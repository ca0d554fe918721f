"""Table outbox_backfill with the progress of each backfill, written in the transactions that write its rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import sql

from outbox_kit.pipeline import Pipeline
from outbox_kit.postgres.client import Connection

TABLE_NAME = "outbox_backfill"


@dataclass(frozen=True)
class BackfillProgress:
    """Progress of one backfill: the last key that was read, and the numbers of written and skipped aggregates."""

    last_key: str | None
    rows: int
    skipped: int
    finished_at: datetime | None


@dataclass(frozen=True)
class ProgressTable:
    """Access to the row of one pipeline and aggregate type. Every method runs in the open transaction."""

    pipeline: Pipeline
    aggregate_type: str

    def create(self, connection: Connection) -> None:
        """Create the table if it does not exist.

        `create table if not exists` alone would require the CREATE privilege even if the table exists.
        """
        exists = connection.execute("select to_regclass(%s) as oid", (self._table.as_string(),)).fetchone()
        if exists and exists["oid"] is not None:
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
        """Return the stored progress; insert a row if there is none. `restart` deletes the stored row first."""
        key = (self.pipeline.name, self.aggregate_type)
        if restart:
            delete = sql.SQL("delete from {} where pipeline = %s and aggregate_type = %s")
            connection.execute(delete.format(self._table), key)
        insert = sql.SQL("insert into {} (pipeline, aggregate_type) values (%s, %s) on conflict do nothing")
        connection.execute(insert.format(self._table), key)
        return self.lock(connection)

    def lock(self, connection: Connection) -> BackfillProgress:
        """Lock and return the progress. Concurrent backfills of one type wait for each other at this lock."""
        select = sql.SQL(
            "select last_key, rows, skipped, finished_at from {} where pipeline = %s and aggregate_type = %s for update"
        )
        row = connection.execute(select.format(self._table), (self.pipeline.name, self.aggregate_type)).fetchall()[0]
        return BackfillProgress(**row)

    def advance(self, connection: Connection, last_key: str, *, rows: int, skipped: int) -> None:
        """Add the counts of a batch that ends with `last_key`."""
        self._update(
            connection, sql.SQL("last_key = %s, rows = rows + %s, skipped = skipped + %s"), last_key, rows, skipped
        )

    def finish(self, connection: Connection) -> None:
        self._update(connection, sql.SQL("finished_at = clock_timestamp()"))

    def _update(self, connection: Connection, assignments: sql.SQL, *values: object) -> None:
        update = sql.SQL("update {} set {} where pipeline = %s and aggregate_type = %s")
        connection.execute(update.format(self._table, assignments), (*values, self.pipeline.name, self.aggregate_type))

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self.pipeline.source.table.split(".")[0], TABLE_NAME)
