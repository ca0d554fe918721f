"""Run the queries that only `outbox verify` needs: server settings and usage, table constraints, and sampled rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, LiteralString

from psycopg import errors, sql

from outbox_kit.pipeline import Environment, Pipeline, Source
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.postgres.other_tables import OtherTable, read_shadowing_tables
from outbox_kit.postgres.role_limits import SENDER_TIMEOUT, RoleLimits, parse_milliseconds, read_role_limits
from outbox_kit.postgres.triggers_and_rules import TriggersAndRules, read_triggers_and_rules

SETTINGS: LiteralString = """
    select name, setting from pg_settings
    where name in ('max_replication_slots', 'max_wal_senders', 'max_prepared_transactions', 'wal_sender_timeout',
                   'max_slot_wal_keep_size', 'idle_replication_slot_timeout')"""
USED_RESOURCES: LiteralString = """
    select (select count(*) from pg_replication_slots)::int as slots,
           (select count(*) from pg_stat_replication)::int as senders,
           coalesce((select jsonb_object_agg(gid, extract(epoch from now() - prepared)::int) from pg_prepared_xacts
                     where database = current_database()), '{}') as prepared_ages_s"""
# Standbys are excluded, because they have no current WAL position from which to compute the retained WAL.
UNREAD_SLOTS: LiteralString = """
    select slot_name as name, (pg_current_wal_lsn() - restart_lsn)::bigint as retained_bytes
    from pg_replication_slots
    where database = current_database() and plugin = 'pgoutput' and slot_name <> %s
      and not active and restart_lsn is not null and not pg_is_in_recovery()"""
NULLABLE_COLUMNS: LiteralString = """
    select attname as name from pg_attribute
    where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped and not attnotnull"""
# Logical decoding omits generated columns, unless the publication includes them (PostgreSQL 18 and later).
GENERATED_COLUMNS: LiteralString = """
    select a.attname as name, pg_get_expr(d.adbin, d.adrelid) as expression
    from pg_attribute a join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where a.attrelid = to_regclass(%s) and a.attgenerated <> '' and not a.attisdropped"""
# After a reload of the configuration, a new wal_level is pending until the next restart of the server.
PENDING_WAL_LEVEL: LiteralString = "select pending_restart as pending from pg_settings where name = 'wal_level'"
CHECK_CONSTRAINTS: LiteralString = """
    select pg_get_constraintdef(oid) as text from pg_constraint where conrelid = to_regclass(%s) and contype = 'c'"""
PUBLISHED_COLUMNS: LiteralString = """
    select to_jsonb(t) -> 'attnames' as columns from pg_publication_tables t
    where t.pubname = %s and t.schemaname || '.' || t.tablename = %s"""
CAN_EMIT: LiteralString = """
    select coalesce(bool_or(has_function_privilege(%s, oid, 'execute')), false) as can_emit
    from pg_proc where proname = 'pg_logical_emit_message'"""
CLOCK: LiteralString = "select extract(epoch from clock_timestamp())::float8 as seconds"
# The rows of a partitioned table are in its leaf partitions. The partitions created last have the highest oids.
LEAF_PARTITIONS: LiteralString = """
    select n.nspname as schema, c.relname as name,
           (pg_relation_size(c.oid) / current_setting('block_size')::int)::int as pages
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind = 'r'
      and (c.oid = to_regclass(%(table)s)
           or c.oid in (select relid from pg_partition_tree(to_regclass(%(table)s)) where isleaf))
    order by c.oid desc limit 20"""
# Only rows of the last pages are read, so that the cost does not depend on the size of the table.
SAMPLE_PAGES, SAMPLE_ROWS = 1000, 50_000
LATEST_ROWS: LiteralString = """
    select {key} as key, coalesce({field}::text, '') as field from {table}
    where {type} = %(type)s and ctid >= {first}::tid"""
MOVED_KEYS: LiteralString = """
    select count(*)::int as keys from (
      select key from ({rows} limit %(limit)s) as latest group by key having count(distinct field) > 1) as moved"""


@dataclass(frozen=True)
class AdditionalState:
    """State that verify reads in addition to `ActualDatabase`.

    `moved_key_counts` maps each aggregate type to the number of its keys with several partition_field values. It is
    None if the rows could not be read; `sampling_error` then contains the reason. `clock_skew_s` is positive if the
    server's clock is ahead of this machine's. `generated_columns` maps each generated column to its expression.
    `sequence_repair` is the result of row_sequence.sequence_repair(), or None if the sequence could not be read.
    `unread_slots` maps each other inactive slot of the database to the bytes of WAL that it retains.
    """

    settings: dict[str, int]
    sender_timeout_ms: int
    usage: Row
    nullable_columns: list[str]
    check_constraints: list[str]
    published_columns: list[str] | None
    can_emit: bool
    moved_key_counts: dict[str, int] | None
    role_limits: RoleLimits
    clock_skew_s: float = 0.0
    hooks: TriggersAndRules = field(default_factory=TriggersAndRules)
    sampling_error: str = ""
    other_tables: tuple[OtherTable, ...] = ()
    generated_columns: dict[str, str] = field(default_factory=dict)
    wal_level_changes: bool = False
    unread_slots: dict[str, int] = field(default_factory=dict)
    sequence_repair: str | None = ""


def read_additional_state(
    connection: Connection, pipeline: Pipeline, environment: Environment, *, role_exists: bool
) -> AdditionalState:
    """Run the queries of this module. `role_exists` tells whether the connector's role exists."""
    source, user = pipeline.source, environment.source.connector.user
    parameters = (ddl.quoted_text(source.table),)
    settings = {row["name"]: int(row["setting"]) for row in connection.execute(SETTINGS)}
    moved_key_counts, sampling_error = _moved_key_counts(connection, pipeline)
    role_limits = read_role_limits(connection, user, source.table)
    sender_timeout = role_limits.settings.get(SENDER_TIMEOUT)
    row = connection.execute(PUBLISHED_COLUMNS, (source.publication, source.table)).fetchone()
    return AdditionalState(
        settings=settings,
        sender_timeout_ms=parse_milliseconds(sender_timeout or str(settings[SENDER_TIMEOUT])),
        usage=connection.execute(USED_RESOURCES).fetchall()[0],
        nullable_columns=[row["name"] for row in connection.execute(NULLABLE_COLUMNS, parameters)],
        check_constraints=[row["text"] for row in connection.execute(CHECK_CONSTRAINTS, parameters)],
        published_columns=row["columns"] if row else None,
        can_emit=role_exists and bool(connection.execute(CAN_EMIT, (user,)).fetchall()[0]["can_emit"]),
        moved_key_counts=moved_key_counts,
        role_limits=role_limits,
        clock_skew_s=_clock_skew_s(connection),
        hooks=read_triggers_and_rules(connection, source.table) if source.uses_table else TriggersAndRules(),
        sampling_error=sampling_error,
        other_tables=read_shadowing_tables(connection, source) if source.uses_table else (),
        generated_columns={row["name"]: row["expression"] for row in connection.execute(GENERATED_COLUMNS, parameters)},
        wal_level_changes=bool(connection.execute(PENDING_WAL_LEVEL).fetchall()[0]["pending"]),
        unread_slots={row["name"]: row["retained_bytes"] for row in connection.execute(UNREAD_SLOTS, (source.slot,))},
    )


def _clock_skew_s(connection: Connection) -> float:
    """Return how far the clock of the server is ahead of the clock of this machine, in seconds."""
    started_at = time.time()
    server_time: float = connection.execute(CLOCK).fetchall()[0]["seconds"]
    return server_time - (started_at + time.time()) / 2


def _moved_key_counts(connection: Connection, pipeline: Pipeline) -> tuple[dict[str, int] | None, str]:
    if not pipeline.source.uses_table:
        return {}, ""
    fields = pipeline.partition_fields
    tables = last_pages(connection, pipeline.source.table) if fields else []
    if not tables:
        return {}, ""  # no aggregate has a partition_field, or postgres.table reports a missing table
    try:
        counts = {name: _count_moved_keys(connection, pipeline.source, tables, name, fields[name]) for name in fields}
    except errors.InsufficientPrivilege:
        return None, f"no permission to read {'the table' if len(tables) == 1 else 'its partitions'}"
    except errors.QueryCanceled:
        return None, "reading the latest rows of the table exceeded statement_timeout"
    except (errors.UndefinedColumn, errors.UndefinedTable):
        return {}, ""
    return counts, ""


def last_pages(connection: Connection, table: str) -> list[tuple[sql.Identifier, sql.Literal]]:
    """Return the table, or each of its leaf partitions, and the ctid at which its last pages begin."""
    tables = connection.execute(LEAF_PARTITIONS, {"table": ddl.quoted_text(table)}).fetchall()
    pages_per_table = SAMPLE_PAGES // max(1, len(tables))
    return [
        (sql.Identifier(row["schema"], row["name"]), sql.Literal(f"({max(0, row['pages'] - pages_per_table)},0)"))
        for row in tables
    ]


def _count_moved_keys(
    connection: Connection,
    source: Source,
    tables: list[tuple[sql.Identifier, sql.Literal]],
    aggregate_type: str,
    field: str,
) -> int:
    queries = [
        sql.SQL(LATEST_ROWS).format(
            key=sql.Identifier(source.columns.aggregate_id),
            type=sql.Identifier(source.columns.aggregate_type),
            field=sql.Identifier(field),
            table=table,
            first=first,
        )
        for table, first in tables
    ]
    statement = sql.SQL(MOVED_KEYS).format(rows=sql.SQL(" union all ").join(queries))
    parameters: dict[str, Any] = {"type": aggregate_type, "limit": SAMPLE_ROWS}
    return int(connection.execute(statement, parameters).fetchall()[0]["keys"])
