"""Replace the content of a table with that of a shadow table, without replacing the relation.

Only rows that differ are written. Views, grants, publications and indexes remain, and writing rows does not block
readers. At any isolation level, readers with an older snapshot still read the previous rows. TRUNCATE and renaming
would not ensure this (see docs/decisions).
"""

from __future__ import annotations

from collections.abc import Collection

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from outbox_events.errors import RefusedError
from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.sinks.postgres.catalog import column_constraints, column_types, primary_key
from outbox_spark.sinks.postgres.connection import Connection
from outbox_spark.sinks.postgres.statements import TableStatements, comma_separated, identifiers


def replace_content(
    connection: Connection, tables: TableStatements, shadow: TableStatements, created: Collection[str]
) -> None:
    """Make the table and ledger equal to the shadow's, add the shadow's quarantined rows, and drop the shadow's tables.

    Columns that the shadow lacks are dropped only if they are in `created`, the columns that runs have created. Call
    this in a transaction. Raises RefusedError if a column to drop is in use, or if a primary key is different.
    """
    # A missing table is created with the columns, constraints and indexes of the shadow's table.
    pairs = [(tables.target, shadow.target), (tables.tombstones, shadow.tombstones)]
    for target, source in [*pairs, (tables.quarantine, shadow.quarantine)]:
        connection.execute(SQL("create table if not exists {} (like {} including all)").format(target, source))
    for target, source in pairs:
        _adapt_columns(connection, target, source, created)
        _write_differences(connection, target, source)
        _adapt_constraints(connection, target, source)
    _insert(connection, tables.quarantine, shadow.quarantine, SQL("on conflict do nothing"))
    for source in (shadow.target, shadow.tombstones, shadow.quarantine):
        connection.execute(SQL("drop table {}").format(source))


def _write_differences(connection: Connection, target: Identifier, source: Identifier) -> None:
    """Delete, update and insert only the rows that differ, because most rebuilds change few rows."""
    keys = primary_key(connection, source)
    if keys != primary_key(connection, target):
        message = f"{target.as_string(connection)} has a different primary key than this version of outbox-kit requires"
        raise RefusedError(message, "drop the table, then run `outbox-materialize`")
    same_key = SQL(" and ").join(SQL("t.{0} = s.{0}").format(Identifier(key)) for key in keys)
    connection.execute(
        SQL("delete from {} t where not exists (select from {} s where {})").format(target, source, same_key)
    )
    columns = [name for name in column_types(connection, source) if name not in keys]
    assignments = comma_separated(SQL("{0} = s.{0}").format(Identifier(name)) for name in columns)
    template = SQL("update {} t set {} from {} s where {} and ({}) is distinct from ({})")
    connection.execute(
        template.format(target, assignments, source, same_key, identifiers(columns, "t"), identifiers(columns, "s"))
    )
    _insert(connection, target, source, SQL("where not exists (select from {} t where {})").format(target, same_key))


def _insert(connection: Connection, target: Identifier, source: Identifier, clause: SQL | Composed) -> None:
    columns = identifiers(column_types(connection, source))
    statement = SQL("insert into {} ({}) select {} from {} s {}").format(target, columns, columns, source, clause)
    connection.execute(statement)


def _adapt_columns(connection: Connection, target: Identifier, source: Identifier, droppable: Collection[str]) -> None:
    """Adapt the columns of `target` to `source`. Drop columns of another type, and `droppable` columns it lacks."""
    actual = column_types(connection, target, collations=True)
    expected = column_types(connection, source, collations=True)
    for name, sql_type in actual.items():
        if expected.get(name) == sql_type or (name not in expected and name not in droppable) or name == KEY_COLUMN:
            continue
        try:
            connection.execute(SQL("alter table {} drop column {}").format(target, Identifier(name)))
        except psycopg.errors.DependentObjectsStillExist as error:
            table = target.as_string(connection)
            change = f"has type {expected[name]}" if name in expected else "does not exist"
            message = f"column {name} of {table} has type {sql_type}; in the rebuilt table it {change}"
            hint = "drop the object that uses the column, such as a view, run `outbox-rebuild`, and recreate the object"
            raise RefusedError(message, hint) from error
    for name, sql_type in expected.items():
        if actual.get(name) != sql_type:
            # _adapt_constraints adds NOT NULL after the rows have been written.
            connection.execute(SQL("alter table {} add column {} {}").format(target, Identifier(name), SQL(sql_type)))


def _adapt_constraints(connection: Connection, target: Identifier, source: Identifier) -> None:
    """Set the NOT NULL constraints and defaults of `source` on the columns of `target` that lack them."""
    expected, actual = column_constraints(connection, source), column_constraints(connection, target)
    for name, (not_null, default) in expected.items():
        alter_column = SQL("alter table {} alter column {} ").format(target, Identifier(name))
        if not_null and not actual[name][0]:
            connection.execute(alter_column + SQL("set not null"))
        if default is not None and actual[name][1] is None:
            connection.execute(alter_column + SQL("set default {}").format(SQL(default)))
