"""Find tables that a service can mistake for the outbox table: children, and tables of this name in other schemas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import compress
from typing import LiteralString

from psycopg import errors, sql

from outbox_kit.pipeline import Source
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection

# The connector reads only the outbox table, even if the publication also contains its children. A table in another
# publication belongs to another pipeline, unless it is a child table and the publication contains all tables.
CANDIDATES: LiteralString = """
    with recursive children as (
      select inhrelid as oid from pg_inherits where inhparent = to_regclass(%(table)s)
      union select i.inhrelid from pg_inherits i join children c on c.oid = i.inhparent),
    candidates as materialized (
      select c.oid, n.nspname as schema, c.relname as name, c.oid in (select oid from children) as is_child,
             has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') as is_readable
      from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.relkind = 'r' and not c.relispartition and c.relpersistence <> 't'
        and c.oid is distinct from to_regclass(%(table)s)
        and (c.relname = %(name)s or c.oid in (select oid from children)))
    select c.schema, c.name, c.is_readable,
           array(select format('%%I.%%I', n.nspname, p.relname)
                 from pg_inherits i join pg_class p on p.oid = i.inhparent join pg_namespace n on n.oid = p.relnamespace
                 where i.inhrelid = c.oid and c.is_child order by i.inhseqno) as parents
    from candidates c
    where (c.is_readable or pg_relation_size(c.oid) > 0)
      and not exists (select from pg_publication_tables t join pg_publication p using (pubname)
                      where t.schemaname = c.schema and t.tablename = c.name
                        and (not c.is_child or (p.pubname <> %(publication)s and not p.puballtables)))
    order by 1, 2 limit 100"""
# PostgreSQL truncates names of more than 63 bytes.
MAX_NAME, SUFFIX = 63, "_not_delivered"


@dataclass(frozen=True)
class OtherTable:
    """Table whose rows are not delivered. If it is a child of the outbox table, `parents` contains quoted table names.

    `has_rows` is None if the login lacks the privilege to read the table, or if the query failed.
    """

    schema: str
    name: str
    parents: tuple[str, ...] = ()
    has_rows: bool | None = True

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    @property
    def text(self) -> str:
        """Qualified name of the table, and its relation to the outbox table."""
        kind = f"inherits from {', '.join(self.parents)}" if self.parents else "another schema"
        return f"{self.schema}.{self.name} ({kind})"

    @property
    def statements(self) -> list[str]:
        """Statements that prevent services from writing to the table by mistake. The table keeps its rows."""
        new_name = self.name[: MAX_NAME - len(SUFFIX)] + SUFFIX
        table = self.identifier.as_string(None)
        detached = [f"alter table {table} no inherit {parent}" for parent in self.parents]
        return [*detached, f"alter table {table} rename to {sql.Identifier(new_name).as_string(None)}"]


def read_shadowing_tables(connection: Connection, source: Source) -> tuple[OtherTable, ...]:
    """Return the tables that have or may have undelivered rows. Tables of other pipelines are not included."""
    name = source.table.rpartition(".")[2]
    parameters = {"table": ddl.quoted_text(source.table), "name": name, "publication": source.publication}
    found = connection.execute(CANDIDATES, parameters).fetchall()
    tables = {OtherTable(row["schema"], row["name"], tuple(row["parents"])): row["is_readable"] for row in found}
    readable = _tables_with_rows(connection, [table for table, is_readable in tables.items() if is_readable])
    return (*readable, *(replace(table, has_rows=None) for table, is_readable in tables.items() if not is_readable))


def _tables_with_rows(connection: Connection, tables: list[OtherTable]) -> list[OtherTable]:
    """Return the tables that contain rows. If the query fails, return all `tables` with unknown `has_rows`.

    The query can fail because a migration of another pipeline locks or drops one of the tables.
    """
    query = sql.SQL("exists (select from only {})")
    flags = sql.SQL(", ").join(query.format(table.identifier) for table in tables)
    try:
        has_rows = connection.execute(sql.SQL("select array[{}]::bool[] as flags").format(flags)).fetchall()[0]["flags"]
    except (errors.QueryCanceled, errors.LockNotAvailable, errors.UndefinedTable):
        return [replace(table, has_rows=None) for table in tables]
    return list(compress(tables, has_rows))
