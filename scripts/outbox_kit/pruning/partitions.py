"""Read and drop the partitions of an outbox table that is partitioned by time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString

from psycopg import errors, sql
from psycopg.rows import class_row

from outbox_events.errors import RefusedError
from outbox_kit.pipeline import Source
from outbox_kit.postgres import ddl
from outbox_kit.postgres.aggregate_queries import QUERY_TIMEOUT_S
from outbox_kit.postgres.client import Connection

# PostgreSQL looks for a deadlock after a wait of 1 s. This wait is shorter, so that no writer's transaction is aborted.
DETACH_TIMEOUT_MS = 500
IS_BY_TIME: LiteralString = """
    select exists (select from pg_partitioned_table p join pg_attribute a on a.attrelid = p.partrelid
                   where p.partrelid = to_regclass(%s) and p.partstrat = 'r' and p.partnatts = 1
                     and a.attnum = p.partattrs[0] and a.attname = %s) as found"""
# The upper bound of the last partition can be MAXVALUE; the default partition has no bound.
PARTITIONS: LiteralString = """
    select oid, schema, name, coalesce(is_table and upper < now() - make_interval(secs => %(older_than)s)
                                       and upper < max(upper) over (), false) as is_closed
    from (select c.oid::bigint as oid, n.nspname as schema, c.relname as name, c.relkind = 'r' as is_table,
                 case when bound ~ 'TO \\(MAXVALUE\\)$' then 'infinity'
                      else substring(bound from 'TO \\(''(.*)''\\)$') end::timestamptz as upper
          from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_namespace n on n.oid = c.relnamespace,
               pg_get_expr(c.relpartbound, c.oid) as bound
          where i.inhparent = to_regclass(%(table)s)) as partition
    order by upper nulls last, oid"""
# Two results are equal only if the partition has the same rows with the same xmin. An update changes xmin.
CONTENT: LiteralString = """
    select count(*) as rows, coalesce(sum(hashtextextended({id}::text || ' ' || xmin::text, 0)), 0)::text as hash
    from only {partition}"""
IS_AWAITED: LiteralString = """
    select exists (select from pg_locks where relation = %s and not granted
                   and database = (select oid from pg_database where datname = current_database())) as found"""


@dataclass(frozen=True)
class Partition:
    """A partition. `is_closed` is true if its range is old and not the last, so that it no longer receives rows."""

    oid: int
    schema: str
    name: str
    is_closed: bool

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)


@dataclass(frozen=True)
class Content:
    """Number of rows in a partition, and a hash of their ids and transactions."""

    rows: int
    hash: str


def refuse_other_partitioning(connection: Connection, source: Source) -> None:
    """Raise RefusedError unless the outbox table is partitioned by ranges of the creation time."""
    parameters = (ddl.quoted_text(source.table), source.columns.created_at)
    if not connection.execute(IS_BY_TIME, parameters).fetchall()[0]["found"]:
        raise RefusedError(
            f"table {source.table} is not partitioned by range ({source.columns.created_at}), so it is unknown which "
            "partitions no longer receive rows",
            "run `outbox prune` without --partitions, which deletes single rows",
        )


def read_partitions(connection: Connection, source: Source, *, older_than: float) -> list[Partition]:
    """Return the partitions of the outbox table, sorted from the oldest to the newest range.

    A range is old if it ends more than `older_than` seconds ago.
    """
    with connection.cursor(row_factory=class_row(Partition)) as cursor:
        cursor.execute(PARTITIONS, {"table": ddl.quoted_text(source.table), "older_than": older_than})
        return cursor.fetchall()


def read_content(connection: Connection, source: Source, partition: Partition) -> Content:
    """Return the content of a partition as the current snapshot of `connection` sees it."""
    query = sql.SQL(CONTENT).format(id=sql.Identifier(source.columns.id), partition=partition.identifier)
    with connection.cursor(row_factory=class_row(Content)) as cursor:
        return cursor.execute(query).fetchall()[0]


def drop_unchanged(connection: Connection, source: Source, partition: Partition, expected: Content) -> str:
    """Detach and drop a partition in one transaction if its content still equals `expected`.

    Return why the partition remains: `changed`, or `locked` if another session holds it; empty if it was dropped.
    """
    try:
        with connection.transaction():
            connection.execute(sql.SQL("set local statement_timeout = {}").format(QUERY_TIMEOUT_S * 1000))
            # Sessions that write to this partition wait until the transaction ends; other writers do not wait.
            connection.execute(sql.SQL("lock table only {} in share mode").format(partition.identifier))
            if read_content(connection, source, partition) != expected:
                return "changed"
            # A writer that waits for the partition has a lock on the table, so detaching would cause a deadlock.
            if connection.execute(IS_AWAITED, (partition.oid,)).fetchall()[0]["found"]:
                return "locked"
            connection.execute(sql.SQL("set local lock_timeout = {}").format(DETACH_TIMEOUT_MS))
            table = ddl.qualified_name(source.table)
            connection.execute(sql.SQL("alter table {} detach partition {}").format(table, partition.identifier))
            connection.execute(sql.SQL("drop table {}").format(partition.identifier))
    except errors.LockNotAvailable:
        return "locked"
    return ""
