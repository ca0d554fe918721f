"""Batches for the PostgreSQL target without Spark, staged by SQL and merged with the statements of the job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import TupleRow, dict_row
from psycopg.sql import SQL, Identifier

from outbox_spark.decoding.columns import Column, ColumnType
from outbox_spark.jobs.model import Mode, WriteCounts
from outbox_spark.sinks.postgres.connection import prepare_merge
from outbox_spark.sinks.postgres.merge import apply_staged
from outbox_spark.sinks.postgres.staging import StagingTable, count_staged, create_staging
from outbox_spark.sinks.postgres.statements import TableStatements

START = datetime(2026, 1, 1, tzinfo=UTC)
TOPIC_ID = "topic-1"
COLUMNS = [Column("n", ColumnType.INTEGER, "int")]
UPSERT, TOMBSTONE, POISON = "upsert", "tombstone", "poison"


@dataclass(frozen=True)
class Change:
    """One record of a log with a single partition."""

    key: str
    kind: str
    sequence: str
    offset: int
    n: int | None = None

    @property
    def version(self) -> tuple[str, int]:
        return (self.sequence, self.offset)

    @property
    def timestamp(self) -> datetime:
        return START + timedelta(seconds=self.offset)


@dataclass
class Table:
    """The table `thing` in a separate schema."""

    connection: psycopg.Connection[TupleRow]
    schema: str
    mode: Mode = Mode.HARD_DELETE
    created: bool = field(default=False)
    may_repeat: bool = field(default=True)
    """Changes with each batch, because it must not affect the result."""

    @property
    def statements(self) -> TableStatements:
        return TableStatements(self.schema, "thing", COLUMNS, mode=self.mode)

    @property
    def staging(self) -> Identifier:
        return Identifier(self.schema, "thing__staging_00000000")

    def staged(self) -> StagingTable:
        """Return all rows of the staging table, as COPY would report them."""
        query = SQL("select xmin::text::bigint, count(*) from {} group by 1").format(self.staging)
        return StagingTable(self.staging, dict(self.connection.execute(query).fetchall()))

    def apply(self, changes: Iterable[Change]) -> WriteCounts:
        """Run one transaction as the job does."""
        self.stage(changes)
        return self.apply_staged_rows()

    def apply_staged_rows(self) -> WriteCounts:
        with self.connection.transaction():
            prepare_merge(self.connection)
            first = not self.created
            if first:
                self.create()
            counts = count_staged(self.connection, self.staged())
            written = apply_staged(
                self.connection,
                self.statements,
                self.staging,
                counts,
                TOPIC_ID,
                is_new_table=first,
                may_repeat=self.may_repeat,
            )
            self.connection.execute(SQL("drop table {}").format(self.staging))
        self.created, self.may_repeat = True, not self.may_repeat
        return written

    def create(self) -> None:
        tables = self.statements
        for statement in [tables.create_table(), *tables.create_ledger(), *tables.create_quarantine()]:
            self.connection.execute(statement)

    def stage(self, changes: Iterable[Change]) -> None:
        self.connection.execute(create_staging(self.staging, COLUMNS))
        insert = SQL(
            "insert into {} (aggregate_id, n, _sequence, _partition_epoch, _partition, _offset, _timestamp, "
            "__outbox_deleted, __outbox_reason) values (%s, %s, %s, 0, 0, %s, %s, %s, %s)"
        ).format(self.staging)
        rows = [
            (
                c.key,
                c.n,
                c.sequence,
                c.offset,
                c.timestamp,
                c.kind == TOMBSTONE,
                "undecodable" if c.kind == POISON else None,
            )
            for c in changes
        ]
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.executemany(insert, rows)

    def rows(self, suffix: str = "") -> list[dict[str, Any]]:
        with self.connection.cursor(row_factory=dict_row) as cursor:
            query = SQL("select * from {} order by aggregate_id, _sequence, _offset")
            return cursor.execute(query.format(Identifier(self.schema, f"thing{suffix}"))).fetchall()

    def state(self, *names: str) -> dict[str, tuple[Any, ...]]:
        """Return the named columns as a tuple, by key."""
        return {row["aggregate_id"]: tuple(row[name] for name in names) for row in self.rows()}


@contextmanager
def fresh_schema(address: psycopg.conninfo.ConninfoDict, name: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """Connect and create a schema, which is dropped afterwards."""
    with psycopg.connect(**address, autocommit=True) as connection:
        connection.execute(SQL("create schema {}").format(Identifier(name)))
        yield connection
        connection.execute(SQL("drop schema {} cascade").format(Identifier(name)))
