"""How far each backfill has come: a small table beside the outbox, written in the same transactions as its rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import sql

from outbox_kit.pipeline import Pipeline
from outbox_kit.postgres.client import Connection

NAME = "outbox_backfill"


@dataclass(frozen=True)
class Mark:
    """Where one backfill stands."""

    last_key: str | None
    rows: int
    skipped: int
    finished_at: datetime | None


@dataclass(frozen=True)
class Ledger:
    """The marks of one pipeline's aggregate type. Methods join the open transaction."""

    pipeline: Pipeline
    aggregate_type: str

    def create(self, connection: Connection) -> None:
        """Make the table where it is missing; only then is the right to create one needed."""
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

    def begin(self, connection: Connection, *, restart: bool) -> Mark:
        """The mark as it is; a new one where there is none, or with `restart`."""
        names = (self.pipeline.name, self.aggregate_type)
        if restart:
            connection.execute(
                sql.SQL("delete from {} where pipeline = %s and aggregate_type = %s").format(self._table), names
            )
        connection.execute(
            sql.SQL("insert into {} (pipeline, aggregate_type) values (%s, %s) on conflict do nothing").format(
                self._table
            ),
            names,
        )
        return self.lock(connection)

    def lock(self, connection: Connection) -> Mark:
        """The mark, locked: of two backfills at once, each takes the next batch in turn."""
        row = connection.execute(
            sql.SQL(
                "select last_key, rows, skipped, finished_at from {}"
                " where pipeline = %s and aggregate_type = %s for update"
            ).format(self._table),
            (self.pipeline.name, self.aggregate_type),
        ).fetchall()[0]
        return Mark(**row)

    def advance(self, connection: Connection, last_key: str, *, rows: int, skipped: int) -> None:
        """Count a batch that ends with `last_key`."""
        connection.execute(
            sql.SQL(
                "update {} set last_key = %s, rows = rows + %s, skipped = skipped + %s"
                " where pipeline = %s and aggregate_type = %s"
            ).format(self._table),
            (last_key, rows, skipped, self.pipeline.name, self.aggregate_type),
        )

    def finish(self, connection: Connection) -> None:
        """No key is left."""
        connection.execute(
            sql.SQL("update {} set finished_at = clock_timestamp() where pipeline = %s and aggregate_type = %s").format(
                self._table
            ),
            (self.pipeline.name, self.aggregate_type),
        )

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self.pipeline.source.table.split(".")[0], NAME)
