"""Query PostgreSQL's system catalogs."""

from __future__ import annotations

from psycopg.sql import Identifier

from outbox_spark.sinks.postgres.connection import Connection, scalar


def schema_exists(connection: Connection, schema: str) -> bool:
    name = Identifier(schema).as_string(connection)
    return bool(scalar(connection, "select to_regnamespace(%s) is not null", (name,)))


def relation_exists(connection: Connection, relation: Identifier) -> bool:
    return bool(scalar(connection, "select to_regclass(%s) is not null", (relation.as_string(connection),)))


def column_types(connection: Connection, relation: Identifier, *, collations: bool = False) -> dict[str, str]:
    """Return a mapping from column names, in table order, to SQL types; empty if there is no table.

    With `collations`, a type includes the column's collation, unless the collation is the default of the type.
    """
    rows = connection.execute(
        "select attname, format_type(atttypid, atttypmod), ' collate ' || quote_ident(collname) "
        "from pg_attribute join pg_type t on t.oid = atttypid "
        "left join pg_collation c on c.oid = attcollation and attcollation <> typcollation "
        "where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped order by attnum",
        (relation.as_string(connection),),
    ).fetchall()
    return {name: sql_type + ((collation or "") if collations else "") for name, sql_type, collation in rows}


def comments(connection: Connection, relation: Identifier) -> dict[str, str]:
    """Return a mapping from column names to comments. The empty name stands for the table itself."""
    rows = connection.execute(
        "select coalesce(a.attname, ''), d.description from pg_description d "
        "left join pg_attribute a on a.attrelid = d.objoid and a.attnum = d.objsubid and d.objsubid > 0 "
        "where d.classoid = 'pg_class'::regclass and d.objoid = to_regclass(%s)",
        (relation.as_string(connection),),
    ).fetchall()
    return dict(rows)


def column_constraints(connection: Connection, relation: Identifier) -> dict[str, tuple[bool, str | None]]:
    """Return, for each column, whether it is NOT NULL, and its default as SQL (None if it has no default).

    Identity columns do not count as NOT NULL, because the server sets their values.
    """
    rows = connection.execute(
        "select attname, attnotnull and attidentity = '', pg_get_expr(adbin, adrelid) from pg_attribute "
        "left join pg_attrdef on adrelid = attrelid and adnum = attnum "
        "where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped order by attnum",
        (relation.as_string(connection),),
    ).fetchall()
    return {name: (not_null, default) for name, not_null, default in rows}


def primary_key(connection: Connection, relation: Identifier) -> list[str]:
    """Return the columns of the primary key, sorted by name."""
    rows = connection.execute(
        "select a.attname from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey) "
        "where i.indrelid = to_regclass(%s) and i.indisprimary order by a.attname",
        (relation.as_string(connection),),
    ).fetchall()
    return [name for (name,) in rows]


def count_dead_rows(connection: Connection, relation: Identifier) -> int:
    """Return the number of dead rows according to the server's statistics."""
    query = "select n_dead_tup from pg_stat_user_tables where relid = %s::regclass"
    return int(scalar(connection, query, (relation.as_string(connection),)) or 0)
