"""Queries of `outbox verify` only: server settings and usage, constraints and sampled rows of the outbox table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import errors, sql

from outbox_kit.pipeline import Environment, Pipeline, Source
from outbox_kit.postgres.client import Connection, Row

SETTINGS: LiteralString = """
    select name, setting from pg_settings
    where name in ('max_replication_slots', 'max_wal_senders', 'max_prepared_transactions', 'wal_sender_timeout',
                   'max_slot_wal_keep_size', 'idle_replication_slot_timeout')"""
# If wal_sender_timeout is set for the connector's role, the WAL sender of the connector uses that value.
ROLE_SETTING: LiteralString = """
    select split_part(entry, '=', 2) as value
    from pg_db_role_setting s join pg_roles r on r.oid = s.setrole, unnest(s.setconfig) as entry
    where r.rolname = %s and split_part(entry, '=', 1) = 'wal_sender_timeout'
      and s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
    order by s.setdatabase desc limit 1"""
USAGE: LiteralString = """
    select (select count(*) from pg_replication_slots)::int as slots,
           (select count(*) from pg_stat_replication)::int as senders,
           (select count(*) from pg_prepared_xacts where database = current_database())::int as prepared,
           coalesce((select extract(epoch from now() - min(prepared)) from pg_prepared_xacts
                     where database = current_database()), 0)::int as prepared_s"""
NULLABLE: LiteralString = """
    select attname as name from pg_attribute
    where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped and not attnotnull"""
CONSTRAINTS: LiteralString = """
    select pg_get_constraintdef(oid) as text from pg_constraint where conrelid = to_regclass(%s) and contype = 'c'"""
PUBLISHED: LiteralString = """
    select to_jsonb(t) -> 'attnames' as columns from pg_publication_tables t
    where t.pubname = %s and t.schemaname || '.' || t.tablename = %s"""
MAY_EMIT: LiteralString = """
    select coalesce(bool_or(has_function_privilege(%s, oid, 'execute')), false) as may_emit
    from pg_proc where proname = 'pg_logical_emit_message'"""
# The rows of a partitioned table are in its leaf partitions. The latest partitions have the highest oids.
LEAVES: LiteralString = """
    select n.nspname as schema, c.relname as name,
           (pg_relation_size(c.oid) / current_setting('block_size')::int)::int as pages
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind = 'r'
      and (c.oid = to_regclass(%(table)s)
           or c.oid in (select relid from pg_partition_tree(to_regclass(%(table)s)) where isleaf))
    order by c.oid desc limit 20"""
# Only the last pages are sampled, so that the cost does not depend on the size of the table.
SAMPLE_PAGES, SAMPLE_ROWS = 1000, 50_000
LATEST_ROWS: LiteralString = """
    select {key} as key, coalesce({field}::text, '') as field from {leaf}
    where {type} = %(type)s and ctid >= {first}::tid"""
MOVED_KEYS: LiteralString = """
    select count(*)::int as keys from (
      select key from ({rows} limit %(limit)s) as latest group by key having count(distinct field) > 1) as moved"""
UNITS_MS = {"": 1, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class AdditionalState:
    """State that verify reads in addition to `ActualDatabase`.

    `moved_keys` is the number of keys with several partition_field values, by aggregate type. It is None if the rows
    could not be read; `sampling_error` then has the reason.
    """

    settings: dict[str, int]
    sender_timeout_ms: int
    usage: Row
    nullable: list[str]
    constraints: list[str]
    published: list[str] | None
    may_emit: bool
    moved_keys: dict[str, int] | None
    sampling_error: str = ""


def read_additional_state(
    connection: Connection, pipeline: Pipeline, environment: Environment, *, role: bool
) -> AdditionalState:
    """Run the queries of this module. `role` means that the connector's role exists."""
    source, user = pipeline.source, environment.source.connector.user
    settings = {row["name"]: int(row["setting"]) for row in connection.execute(SETTINGS)}
    moved_keys, sampling_error = _moved_keys(connection, pipeline)
    role_setting = connection.execute(ROLE_SETTING, (user,)).fetchone()
    published = connection.execute(PUBLISHED, (source.publication, source.table)).fetchone()
    return AdditionalState(
        settings=settings,
        sender_timeout_ms=milliseconds(role_setting["value"]) if role_setting else settings["wal_sender_timeout"],
        usage=connection.execute(USAGE).fetchall()[0],
        nullable=[row["name"] for row in connection.execute(NULLABLE, (source.table,))],
        constraints=[row["text"] for row in connection.execute(CONSTRAINTS, (source.table,))],
        published=published["columns"] if published else None,
        may_emit=role and bool(connection.execute(MAY_EMIT, (user,)).fetchall()[0]["may_emit"]),
        moved_keys=moved_keys,
        sampling_error=sampling_error,
    )


def milliseconds(value: str) -> int:
    """Parse a duration in PostgreSQL's notation: `5s`, `60000`, `1min`. Raises ValueError."""
    match = re.fullmatch(r"(\d+)\s*(ms|s|min|h|d|)", value.strip().strip("'\""))
    if match is None:
        raise ValueError(f"not a duration: {value!r}")
    return int(match[1]) * UNITS_MS[match[2]]


def _moved_keys(connection: Connection, pipeline: Pipeline) -> tuple[dict[str, int] | None, str]:
    if not pipeline.source.uses_table:
        return {}, ""
    fields = {name: entry.partition_field for name, entry in pipeline.aggregates.items() if entry.partition_field}
    leaves = connection.execute(LEAVES, {"table": pipeline.source.table}).fetchall() if fields else []
    if not leaves:
        return {}, ""  # the check postgres.table reports a missing table
    try:
        counts = {name: _count_moved_keys(connection, pipeline.source, leaves, name, fields[name]) for name in fields}
    except errors.InsufficientPrivilege:
        return None, f"no permission to read {'the table' if len(leaves) == 1 else 'its partitions'}"
    except errors.QueryCanceled:
        return None, "reading the latest rows of the table exceeded statement_timeout"
    except (errors.UndefinedColumn, errors.UndefinedTable):
        return {}, ""
    return counts, ""


def _count_moved_keys(
    connection: Connection, source: Source, leaves: list[Row], aggregate_type: str, field: str
) -> int:
    pages_per_leaf = SAMPLE_PAGES // len(leaves)
    rows = [
        sql.SQL(LATEST_ROWS).format(
            key=sql.Identifier(source.columns.aggregate_id),
            type=sql.Identifier(source.columns.aggregate_type),
            field=sql.Identifier(field),
            leaf=sql.Identifier(leaf["schema"], leaf["name"]),
            first=sql.Literal(f"({max(0, leaf['pages'] - pages_per_leaf)},0)"),
        )
        for leaf in leaves
    ]
    statement = sql.SQL(MOVED_KEYS).format(rows=sql.SQL(" union all ").join(rows))
    values: dict[str, Any] = {"type": aggregate_type, "limit": SAMPLE_ROWS}
    return int(connection.execute(statement, values).fetchall()[0]["keys"])
