"""Read tables, columns, keys and foreign keys from PostgreSQL's catalog."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

ARRAY_CATEGORY = "A"
TABLES: LiteralString = """
    select c.oid::bigint as oid, n.nspname as schema, c.relname as name,
           case when c.reltuples >= 0 then c.reltuples::bigint end as rows,
           coalesce(obj_description(c.oid, 'pg_class'), '') as comment,
           c.relkind = 'r' and exists (select from pg_inherits where inhparent = c.oid) as has_heirs
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and not c.relispartition and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
      and not exists (select from pg_depend where classid = 'pg_class'::regclass and objid = c.oid and deptype = 'e')
    order by n.nspname, c.relname"""
COLUMNS: LiteralString = """
    select attrelid::bigint as table_oid, attname as name, atttypid::bigint as type_oid, atttypmod as modifier,
           attnotnull as not_null, format_type(atttypid, atttypmod) as sql_type,
           coalesce(col_description(attrelid, attnum), '') as comment
    from pg_attribute where attrelid = any(%s) and attnum > 0 and not attisdropped order by attrelid, attnum"""
TYPES: LiteralString = """
    select oid::bigint as oid, typname as name, typtype = 'd' as is_domain, typcategory as category,
           typbasetype::bigint as base_oid, typtypmod as modifier, typnotnull as not_null,
           typelem::bigint as element_oid, typnamespace = 'pg_catalog'::regnamespace as is_builtin,
           array(select enumlabel::text from pg_enum where enumtypid = pg_type.oid order by enumsortorder) as labels
    from pg_type"""
# Unique indexes that identify each row: on columns only, on all rows, and checked immediately.
KEYS: LiteralString = """
    select indrelid::bigint as table_oid,
           array(select attname::text from unnest(indkey[0:indnkeyatts - 1]) with ordinality as part(number, position)
                 join pg_attribute on attrelid = indrelid and attnum = part.number order by position) as columns
    from pg_index
    where indrelid = any(%s) and indisunique and indisvalid and indimmediate and indpred is null and indexprs is null
    order by indisprimary desc, indexrelid"""
FOREIGN_KEYS: LiteralString = """
    select conname as name, conrelid::bigint as table_oid, confrelid::bigint as parent_oid,
           confdeltype = 'c' as cascades,
           array(select attname::text from unnest(conkey) with ordinality as part(number, position)
                 join pg_attribute on attrelid = conrelid and attnum = part.number order by position) as columns,
           array(select attname::text from unnest(confkey) with ordinality as part(number, position)
                 join pg_attribute on attrelid = confrelid and attnum = part.number order by position) as parent_columns
    from pg_constraint where contype = 'f' and conparentid = 0 and conrelid = any(%s) order by conname"""


@dataclass(frozen=True)
class ColumnType:
    """A type of PostgreSQL. A domain is replaced with its base type.

    `modifier` is -1 if the type has none. `labels` is empty unless the type is an enum.
    """

    name: str
    modifier: int = -1
    labels: tuple[str, ...] = ()
    element: ColumnType | None = None
    is_builtin: bool = True
    """Whether the type and its operators are in the schema pg_catalog."""


@dataclass(frozen=True)
class Column:
    """A column. `sql_type` is the type as in `create table`."""

    name: str
    type: ColumnType
    is_nullable: bool
    sql_type: str
    comment: str = ""


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key. `parent` is the full name of the referenced table, whose `parent_columns` it references."""

    name: str
    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    cascades: bool


@dataclass(frozen=True)
class Table:
    """A table. `keys` contains the columns of each unique index without nullable columns, the primary key first."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    rows: int | None = None
    """The planner's estimate of the number of rows; None if the table was never analyzed."""
    comment: str = ""
    has_heirs: bool = False
    """Whether other tables inherit from the table, so that a query of the table also returns their rows."""

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    def nullable(self, columns: tuple[str, ...]) -> bool:
        """Return whether one of these columns can be null."""
        return any(column.is_nullable for column in self.columns_named(columns))

    def columns_named(self, names: tuple[str, ...]) -> list[Column]:
        return [column for column in self.columns if column.name in names]


def read_tables(connection: psycopg.Connection[dict[str, Any]]) -> dict[str, Table]:
    """Return a mapping from full name to table. System tables and tables of extensions are omitted."""
    tables = connection.execute(TABLES).fetchall()
    oids = [row["oid"] for row in tables]
    names = {row["oid"]: f"{row['schema']}.{row['name']}" for row in tables}
    types = {row["oid"]: row for row in connection.execute(TYPES)}
    columns = _grouped(connection, COLUMNS, oids)
    keys, foreign_keys = _grouped(connection, KEYS, oids), _grouped(connection, FOREIGN_KEYS, oids)
    return {
        names[row["oid"]]: _table(row, columns[row["oid"]], keys[row["oid"]], foreign_keys[row["oid"]], names, types)
        for row in tables
    }


def _grouped(
    connection: psycopg.Connection[dict[str, Any]], query: LiteralString, oids: list[int]
) -> dict[int, list[dict[str, Any]]]:
    rows = defaultdict(list)
    for row in connection.execute(query, (oids,)):
        rows[row["table_oid"]].append(row)
    return rows


def _table(
    row: dict[str, Any],
    columns: list[dict[str, Any]],
    keys: list[dict[str, Any]],
    foreign_keys: list[dict[str, Any]],
    names: dict[int, str],
    types: dict[int, dict[str, Any]],
) -> Table:
    table_columns = tuple(_column(entry, types) for entry in columns)
    nullable = {column.name for column in table_columns if column.is_nullable}
    return Table(
        row["schema"],
        row["name"],
        table_columns,
        tuple(tuple(entry["columns"]) for entry in keys if not nullable.intersection(entry["columns"])),
        tuple(
            ForeignKey(
                entry["name"],
                tuple(entry["columns"]),
                names[entry["parent_oid"]],
                tuple(entry["parent_columns"]),
                entry["cascades"],
            )
            for entry in foreign_keys
            if entry["parent_oid"] in names
        ),
        row["rows"],
        row["comment"],
        row["has_heirs"],
    )


def _column(row: dict[str, Any], types: dict[int, dict[str, Any]]) -> Column:
    oid, not_null = row["type_oid"], row["not_null"]
    while types[oid]["is_domain"]:
        not_null = not_null or types[oid]["not_null"]
        oid = types[oid]["base_oid"]
    column_type = _type(row["type_oid"], row["modifier"], types)
    return Column(row["name"], column_type, not not_null, row["sql_type"], row["comment"])


def _type(oid: int, modifier: int, types: dict[int, dict[str, Any]]) -> ColumnType:
    row = types[oid]
    if row["is_domain"]:
        return _type(row["base_oid"], max(modifier, row["modifier"]), types)
    if row["category"] == ARRAY_CATEGORY and row["element_oid"]:
        return ColumnType(row["name"], element=_type(row["element_oid"], modifier, types))
    return ColumnType(row["name"], modifier, tuple(row["labels"]), is_builtin=row["is_builtin"])
