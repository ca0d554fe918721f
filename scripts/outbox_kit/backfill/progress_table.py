"""Store each backfill's progress in the table outbox_backfill, in the transactions that write outbox rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from psycopg import sql

from outbox_kit.pipeline import Pipeline
from outbox_kit.postgres.client import Connection

TABLE_NAME = "outbox_backfill"
TOPIC_ID: LiteralString = "select 1 from pg_attribute where attrelid = to_regclass(%s) and attname = 'topic_id'"
# Otherwise, of two first backfills, the second would drop the table that the first has created in the meantime.
LOCK: LiteralString = "select pg_advisory_xact_lock(hashtext(%s))"
ROW = sql.SQL("pipeline = %s and aggregate_type = %s and topic_id = %s")


@dataclass(frozen=True)
class BackfillProgress:
    """Progress of one backfill: the last key read, the numbers of written and skipped aggregates, and the end time."""

    last_key: str | None
    row_count: int
    skipped_count: int
    finished_at: datetime | None


@dataclass(frozen=True)
class ProgressTable:
    """Accesses the row for one topic of an aggregate type. Every method must be called in an open transaction.

    `topic_id` changes if the topic is created again, and in another cluster, so that a new topic has no progress.
    """

    pipeline: Pipeline
    aggregate_type: str
    topic_id: str

    def create(self, connection: Connection) -> None:
        """Create the table if it does not exist. Replace a table without topic ids, whose progress can be outdated.

        The method first looks up the table, because `create table if not exists` always requires the CREATE privilege.
        """
        connection.execute(LOCK, (self._table.as_string(),))
        if connection.execute(TOPIC_ID, (self._table.as_string(),)).fetchone() is not None:
            return
        connection.execute(
            sql.SQL("""
                drop table if exists {};
                create table if not exists {} (
                  pipeline       text not null,
                  aggregate_type text not null,
                  topic_id       text not null,
                  last_key       text,
                  rows           bigint not null default 0,
                  skipped        bigint not null default 0,
                  started_at     timestamptz not null default clock_timestamp(),
                  finished_at    timestamptz,
                  primary key (pipeline, aggregate_type, topic_id))
            """).format(self._table, self._table)
        )

    def begin(self, connection: Connection, *, restart: bool) -> BackfillProgress:
        """Insert the row if it does not exist, and return its progress. With `restart`, delete the stored row first."""
        if restart:
            connection.execute(sql.SQL("delete from {} where {}").format(self._table, ROW), self._key)
        insertion = sql.SQL(
            "insert into {} (pipeline, aggregate_type, topic_id) values (%s, %s, %s) on conflict do nothing"
        )
        connection.execute(insertion.format(self._table), self._key)
        return self.lock(connection)

    def lock(self, connection: Connection) -> BackfillProgress:
        """Lock the row and return its progress. Concurrent backfills of the aggregate type wait for this lock."""
        query = sql.SQL(
            "select last_key, rows as row_count, skipped as skipped_count, finished_at from {} where {} for update"
        ).format(self._table, ROW)
        return BackfillProgress(**connection.execute(query, self._key).fetchall()[0])

    def advance(self, connection: Connection, last_key: str, *, row_count: int, skipped_count: int) -> None:
        """Store the last key of a batch, and add the counts of the batch to the stored counts."""
        assignments = sql.SQL("last_key = %s, rows = rows + %s, skipped = skipped + %s")
        self._update(connection, assignments, last_key, row_count, skipped_count)

    def finish(self, connection: Connection) -> None:
        self._update(connection, sql.SQL("finished_at = clock_timestamp()"))

    def _update(self, connection: Connection, assignments: sql.SQL, *values: object) -> None:
        update = sql.SQL("update {} set {} where {}").format(self._table, assignments, ROW)
        connection.execute(update, (*values, *self._key))

    @property
    def _key(self) -> tuple[str, str, str]:
        return self.pipeline.name, self.aggregate_type, self.topic_id

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self.pipeline.source.table.split(".")[0], TABLE_NAME)
