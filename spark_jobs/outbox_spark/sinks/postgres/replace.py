"""Replaces the content of a table by that of a shadow table, without replacing the relation.

Only rows that differ are written. Views, grants, publications and indexes remain, readers are not blocked, and readers
with an older snapshot read the older rows, at any isolation level. TRUNCATE and renaming do not ensure this, see
docs/decisions.
"""

from __future__ import annotations

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.errors import RefusedError
from outbox_spark.sinks.postgres.catalog import column_types, constraints, primary_key
from outbox_spark.sinks.postgres.connection import Connection
from outbox_spark.sinks.postgres.statements import TableStatements, comma_separated, identifiers


def replace_content(connection: Connection, tables: TableStatements, shadow: TableStatements) -> None:
    """Make table and ledger equal to the shadow's, add the shadow's quarantine, and drop the shadow.

    Called in a transaction. Raises RefusedError when a view uses a column whose type has to change.
    """
    # LIKE copies constraints and indexes when the table does not exist yet.
    pairs = [(tables.target, shadow.target), (tables.tombstones, shadow.tombstones)]
    for target, source in [*pairs, (tables.quarantine, shadow.quarantine)]:
        connection.execute(SQL("create table if not exists {} (like {} including all)").format(target, source))
    for target, source in pairs:
        _adapt_columns(connection, target, source)
        _write_differences(connection, target, source)
        _adapt_constraints(connection, target, source)
    _adapt_columns(connection, tables.quarantine, shadow.quarantine, keep_extra=True)
    _insert(connection, tables.quarantine, shadow.quarantine, SQL("on conflict do nothing"))
    for source in (shadow.target, shadow.tombstones, shadow.quarantine):
        connection.execute(SQL("drop table {}").format(source))


def _write_differences(connection: Connection, target: Identifier, source: Identifier) -> None:
    """Delete, update and insert only rows that differ; most rebuilds change few rows."""
    keys = primary_key(connection, source)
    if keys != primary_key(connection, target):
        message = f"{target.as_string(connection)} has a different primary key than this version of outbox-kit requires"
        raise RefusedError(message, "drop the table, then run outbox-materialize")
    same_key = SQL(" and ").join(SQL("t.{0} = s.{0}").format(Identifier(key)) for key in keys)
    connection.execute(
        SQL("delete from {} t where not exists (select from {} s where {})").format(target, source, same_key)
    )
    columns = [name for name in column_types(connection, source) if name not in keys]
    assignments = comma_separated(SQL("{0} = s.{0}").format(Identifier(name)) for name in columns)
    update = SQL("update {} t set {} from {} s where {} and ({}) is distinct from ({})")
    connection.execute(
        update.format(target, assignments, source, same_key, identifiers(columns, "t"), identifiers(columns, "s"))
    )
    _insert(connection, target, source, SQL("where not exists (select from {} t where {})").format(target, same_key))


def _insert(connection: Connection, target: Identifier, source: Identifier, clause: SQL | Composed) -> None:
    columns = identifiers(column_types(connection, source))
    insert = SQL("insert into {} ({}) select {} from {} s {}").format(target, columns, columns, source, clause)
    connection.execute(insert)


def _adapt_columns(connection: Connection, target: Identifier, source: Identifier, *, keep_extra: bool = False) -> None:
    """Drop and add columns to match those of `source`. A column with a different type is recreated."""
    actual = column_types(connection, target, collations=True)
    expected = column_types(connection, source, collations=True)
    for name, kind in actual.items():
        if expected.get(name) == kind or (keep_extra and name not in expected) or name == KEY_COLUMN:
            continue
        try:
            connection.execute(SQL("alter table {} drop column {}").format(target, Identifier(name)))
        except psycopg.errors.DependentObjectsStillExist as error:
            new = f"has type {expected[name]}" if name in expected else "is removed"
            message = f"column {name} of {target.as_string(connection)} has type {kind}; in the rebuilt table it {new}"
            hint = "a view uses the column: drop the view, run the rebuild again (it continues), create the view again"
            raise RefusedError(message, hint) from error
    for name, kind in expected.items():
        if actual.get(name) != kind:
            # _adapt_constraints adds NOT NULL after the rows are written.
            add = SQL("alter table {} add column {} {}").format(target, Identifier(name), SQL(kind))
            connection.execute(add)


def _adapt_constraints(connection: Connection, target: Identifier, source: Identifier) -> None:
    """Set NOT NULL and defaults as in the source, on the columns that were added."""
    expected, actual = constraints(connection, source), constraints(connection, target)
    for name, (not_null, default) in expected.items():
        column = SQL("alter table {} alter column {} ").format(target, Identifier(name))
        if not_null and not actual[name][0]:
            connection.execute(column + SQL("set not null"))
        if default is not None and actual[name][1] is None:
            connection.execute(column + SQL("set default {}").format(SQL(default)))
