"""PostgreSQL: a table takes over the content of another, in one transaction that keeps the table itself.

The table stays the same relation, and only rows that differ are written: views, grants, publications and indexes
that others made stay, readers are not blocked, and a reader with an older snapshot sees the older rows, whatever its
isolation level. TRUNCATE and a swap by rename do not have the last property, see docs/decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
from psycopg.sql import SQL, Composed, Identifier
from psycopg.types.json import Jsonb

from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.errors import RefusedError
from outbox_spark.jobs.model import Committed
from outbox_spark.sinks.postgres.statements import OFFSETS_TABLE
from outbox_spark.sinks.target_table import QUARANTINE_SUFFIX, TOMBSTONES_SUFFIX

if TYPE_CHECKING:
    from outbox_spark.sinks.postgres.table import PostgresTable


def replace_by(table: PostgresTable, shadow: PostgresTable) -> None:
    """Give `table` rows, ledger and progress of `shadow`; the shadow's quarantine is added to the table's.

    Raises RefusedError when the table is not the job's, when the shadow has no progress, and when a column that has
    to change its type is used by a view.
    """
    progress = shadow.committed()
    if progress is None:
        message = f"{shadow._name} does not exist: there is nothing that could replace {table._name}"
        raise RefusedError(message, "run the rebuild again")
    with table._explained(), table._open.transaction():
        run = _next_run(table, progress)
        # Constraints and indexes come with the first copy; later ones find the table there.
        for suffix in ("", TOMBSTONES_SUFFIX, QUARANTINE_SUFFIX):
            _take_over(table, shadow, suffix)
        _move_progress(table, shadow, replace(progress, run=run))
        for suffix in ("", TOMBSTONES_SUFFIX, QUARANTINE_SUFFIX):
            table._execute(SQL("drop table {}").format(_name(shadow, suffix)))
    table._seen_run, shadow._seen_run = run, None


def _next_run(table: PostgresTable, progress: Committed) -> int:
    """The run number of the commit. Refuses a table that the job did not make: it would be emptied."""
    row = table._open.execute(
        SQL("select run from {} where table_name = %s for update").format(table._sql().offsets), (table._table,)
    ).fetchone()
    if row is None and table._exists(table._table):
        message = f"table {table._name} exists, but {OFFSETS_TABLE} has no row for it: the job did not make it"
        raise RefusedError(message, "materialize into another table, or drop this one")
    return max(progress.run, row[0] if row else 0) + 1


def _take_over(table: PostgresTable, shadow: PostgresTable, suffix: str) -> None:
    target, source = _name(table, suffix), _name(shadow, suffix)
    table._execute(SQL("create table if not exists {} (like {} including all)").format(target, source))
    keeps = suffix == QUARANTINE_SUFFIX
    _conform(table, target, source, keep=keeps)
    columns = list(_columns(table, source))
    if keeps:
        _execute(table, "insert into {} ({}) select {} from {} on conflict do nothing", target, columns, source)
        return
    keys = _primary_key(table, source)
    if keys != _primary_key(table, target):
        message = f"{table._name}{suffix} has another primary key than a table that the job makes now"
        raise RefusedError(message, "drop the table, then run outbox-materialize")
    _write_differences(table, target, source, columns, keys)
    _constrain(table, target, source)


def _write_differences(
    table: PostgresTable, target: Identifier, source: Identifier, columns: Sequence[str], keys: Sequence[str]
) -> None:
    """Three statements that leave alone what is equal: a rebuild often finds that little is wrong."""
    if not keys:
        table._execute(SQL("delete from {}").format(target))
        _execute(table, "insert into {} ({}) select {} from {}", target, columns, source)
        return
    same = SQL(" and ").join(SQL("t.{0} = s.{0}").format(Identifier(key)) for key in keys)
    table._execute(SQL("delete from {} t where not exists (select from {} s where {})").format(target, source, same))
    others = [name for name in columns if name not in keys]
    if others:
        assignments = SQL(", ").join(SQL("{0} = s.{0}").format(Identifier(name)) for name in others)
        table._execute(
            SQL("update {} t set {} from {} s where {} and ({}) is distinct from ({})").format(
                target, assignments, source, same, _list(others, "t."), _list(others, "s.")
            )
        )
    table._execute(
        SQL("insert into {} ({}) select {} from {} s where not exists (select from {} t where {})").format(
            target, _list(columns), _list(columns), source, target, same
        )
    )


def _conform(table: PostgresTable, target: Identifier, source: Identifier, *, keep: bool) -> None:
    """Columns as the source has them. A column of another type is made anew: every row is written anyway."""
    found, wanted = _columns(table, target), _columns(table, source)
    for name, kind in found.items():
        if wanted.get(name) == kind or (keep and name not in wanted) or name == KEY_COLUMN:
            continue
        try:
            table._execute(SQL("alter table {} drop column {}").format(target, Identifier(name)))
        except psycopg.errors.DependentObjectsStillExist as error:
            message = f"column {name} of {table._name} is {kind}, the rebuilt one {wanted.get(name, 'has none')}"
            hint = "a view uses the column: drop the view, run the rebuild again (it continues), make the view again"
            raise RefusedError(message, hint) from error
    for name, kind in wanted.items():
        if found.get(name) != kind:
            # NOT NULL follows, once the rows are there.
            added = SQL("alter table {} add column {} {}").format(target, Identifier(name), SQL(kind))
            table._execute(added)


def _move_progress(table: PostgresTable, shadow: PostgresTable, progress: Committed) -> None:
    offsets = table._sql().offsets
    table._open.execute(SQL("delete from {} where table_name = %s").format(offsets), (shadow._table,))
    table._open.execute(
        SQL(
            "insert into {} (table_name, run, progress) values (%s, %s, %s) on conflict (table_name) "
            "do update set run = excluded.run, progress = excluded.progress, committed_at = now()"
        ).format(offsets),
        (table._table, progress.run, Jsonb(progress.to_json())),
    )


def _columns(table: PostgresTable, relation: Identifier) -> dict[str, str]:
    """Name to type, with a collation that is not the type's own; in the table's order."""
    rows = table._open.execute(
        "select attname, format_type(atttypid, atttypmod) || coalesce(' collate ' || quote_ident(collname), '') "
        "from pg_attribute join pg_type t on t.oid = atttypid "
        "left join pg_collation c on c.oid = attcollation and attcollation <> typcollation "
        "where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped order by attnum",
        (relation.as_string(table._open),),
    ).fetchall()
    return dict(rows)


def _constrain(table: PostgresTable, target: Identifier, source: Identifier) -> None:
    """NOT NULL and defaults as the source has them, on columns that were added without."""
    query = (
        "select attname, attnotnull, pg_get_expr(adbin, adrelid) from pg_attribute "
        "left join pg_attrdef on adrelid = attrelid and adnum = attnum "
        "where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped order by attnum"
    )
    wanted, found = (
        {name: rest for name, *rest in table._open.execute(query, (each.as_string(table._open),)).fetchall()}
        for each in (source, target)
    )
    for name, (required, default) in wanted.items():
        if required and not found[name][0]:
            table._execute(SQL("alter table {} alter column {} set not null").format(target, Identifier(name)))
        if default is not None and found[name][1] is None:
            statement = SQL("alter table {} alter column {} set default {}")
            table._execute(statement.format(target, Identifier(name), SQL(default)))


def _primary_key(table: PostgresTable, relation: Identifier) -> list[str]:
    rows = table._open.execute(
        "select a.attname from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey) "
        "where i.indrelid = to_regclass(%s) and i.indisprimary order by a.attname",
        (relation.as_string(table._open),),
    ).fetchall()
    return [name for (name,) in rows]


def _execute(
    table: PostgresTable, statement: str, target: Identifier, columns: Sequence[str], source: Identifier
) -> None:
    table._execute(SQL(statement).format(target, _list(columns), _list(columns), source))


def _list(names: Sequence[str], prefix: str = "") -> Composed:
    return SQL(", ").join(SQL(prefix) + Identifier(name) for name in names)


def _name(table: PostgresTable, suffix: str) -> Identifier:
    return Identifier(table._target.schema, table._table + suffix)
