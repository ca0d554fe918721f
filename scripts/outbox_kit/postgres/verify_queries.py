"""What only `outbox verify` asks PostgreSQL: capacity, the slot's reader, what the table itself guarantees."""

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
# The walsender's own value is that of the connector's role, where it has one.
ROLE_SETTING: LiteralString = """
    select split_part(entry, '=', 2) as value
    from pg_db_role_setting s join pg_roles r on r.oid = s.setrole, unnest(s.setconfig) as entry
    where r.rolname = %s and split_part(entry, '=', 1) = 'wal_sender_timeout'
      and s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
    order by s.setdatabase desc limit 1"""
USED: LiteralString = """
    select (select count(*) from pg_replication_slots)::int as slots,
           (select count(*) from pg_stat_replication)::int as senders,
           (select count(*) from pg_prepared_xacts where database = current_database())::int as prepared,
           coalesce((select extract(epoch from now() - min(prepared)) from pg_prepared_xacts
                     where database = current_database()), 0)::int as prepared_s"""
# Columns that newer versions have are asked for through JSON: the query is the same on every version.
SLOT_MORE: LiteralString = """
    select (s.confirmed_flush_lsn - '0/0')::bigint as confirmed, s.active_pid, s.two_phase,
           (to_jsonb(s) ->> 'failover')::bool as failover, to_jsonb(s) ->> 'invalidation_reason' as invalid,
           (select a.usename from pg_stat_activity a where a.pid = s.active_pid) as reader
    from pg_replication_slots s where s.slot_name = %s"""
NULLABLE: LiteralString = """
    select attname as name from pg_attribute
    where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped and not attnotnull"""
CONSTRAINTS: LiteralString = """
    select pg_get_constraintdef(oid) as text from pg_constraint where conrelid = to_regclass(%s) and contype = 'c'"""
PUBLISHED: LiteralString = """
    select to_jsonb(t) -> 'attnames' as columns from pg_publication_tables t
    where t.pubname = %s and t.schemaname || '.' || t.tablename = %s"""
EMIT: LiteralString = """
    select coalesce(bool_or(has_function_privilege(%s, oid, 'execute')), false) as may
    from pg_proc where proname = 'pg_logical_emit_message'"""
# Rows are in the leaves: the root of a partitioned table has no pages. The newest partitions were made last.
LEAVES: LiteralString = """
    select n.nspname as schema, c.relname as name,
           (pg_relation_size(c.oid) / current_setting('block_size')::int)::int as pages
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind = 'r'
      and (c.oid = to_regclass(%(table)s)
           or c.oid in (select relid from pg_partition_tree(to_regclass(%(table)s)) where isleaf))
    order by c.oid desc limit 20"""
# The newest pages only: cheap on a table of any size, and what breaks today is there.
SAMPLE_PAGES, SAMPLE_ROWS = 1000, 50_000
NEWEST: LiteralString = """
    select {key} as key, coalesce({field}::text, '') as place from {leaf}
    where {type} = %(kind)s and ctid >= {first}::tid"""
MOVED: LiteralString = """
    select count(*)::int as keys from (
      select key from ({newest} limit %(rows)s) as newest group by key having count(distinct place) > 1) as moved"""
UNITS_MS = {"": 1, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Details:
    """What verify looks at beyond `ActualDatabase`; `moved` is None where no row was read, `unsampled` says why."""

    settings: dict[str, int]
    sender_timeout_ms: int
    used: Row
    slot: Row | None
    nullable: list[str]
    constraints: list[str]
    published: list[str] | None
    may_emit: bool
    moved: dict[str, int] | None
    unsampled: str = ""


@dataclass(frozen=True)
class Position:
    """Where the slot stands (bytes of WAL) and which server process reads it for the connector."""

    confirmed: int
    reader: int | None


def read_details(connection: Connection, pipeline: Pipeline, environment: Environment, *, role: bool) -> Details:
    """Ask everything; `role` tells whether the connector's role exists."""
    source, user = pipeline.source, environment.source.connector.user
    settings = {row["name"]: int(row["setting"]) for row in connection.execute(SETTINGS)}
    moved, unsampled = _moved(connection, pipeline)
    own = connection.execute(ROLE_SETTING, (user,)).fetchone()
    published = connection.execute(PUBLISHED, (source.publication, source.table)).fetchone()
    return Details(
        settings=settings,
        sender_timeout_ms=milliseconds(own["value"]) if own else settings["wal_sender_timeout"],
        used=connection.execute(USED).fetchall()[0],
        slot=connection.execute(SLOT_MORE, (source.slot,)).fetchone(),
        nullable=[row["name"] for row in connection.execute(NULLABLE, (source.table,))],
        constraints=[row["text"] for row in connection.execute(CONSTRAINTS, (source.table,))],
        published=published["columns"] if published else None,
        may_emit=role and bool(connection.execute(EMIT, (user,)).fetchall()[0]["may"]),
        moved=moved,
        unsampled=unsampled,
    )


def position(connection: Connection, slot: str) -> Position | None:
    """The slot's position now; None where there is no slot."""
    row = connection.execute(SLOT_MORE, (slot,)).fetchone()
    return Position(row["confirmed"], row["active_pid"]) if row and row["confirmed"] is not None else None


def milliseconds(value: str) -> int:
    """A duration as PostgreSQL writes it in a role's settings: `5s`, `60000`, `1min`."""
    found = re.fullmatch(r"(\d+)\s*(ms|s|min|h|d|)", value.strip().strip("'\""))
    if found is None:
        msg = f"not a duration: {value!r}"
        raise ValueError(msg)
    return int(found[1]) * UNITS_MS[found[2]]


def _moved(connection: Connection, pipeline: Pipeline) -> tuple[dict[str, int] | None, str]:
    """Keys of each aggregate, among the newest rows, whose partition_field has had more than one value; why not."""
    if not pipeline.source.uses_table:
        return {}, ""
    fields = {kind: each.partition_field for kind, each in pipeline.aggregates.items() if each.partition_field}
    leaves = connection.execute(LEAVES, {"table": pipeline.source.table}).fetchall() if fields else []
    if not leaves:
        return {}, ""  # the table's own check names what is missing
    try:
        return {kind: _moved_keys(connection, pipeline.source, leaves, kind, fields[kind]) for kind in fields}, ""
    except errors.InsufficientPrivilege:
        return None, f"this login may not read {'the table' if len(leaves) == 1 else 'its partitions'}"
    except errors.QueryCanceled:
        return None, "its newest rows were not read in time"
    except (errors.UndefinedColumn, errors.UndefinedTable):
        return {}, ""


def _moved_keys(connection: Connection, source: Source, leaves: list[Row], kind: str, field: str) -> int:
    pages = SAMPLE_PAGES // len(leaves)
    newest = [
        sql.SQL(NEWEST).format(
            key=sql.Identifier(source.columns.aggregate_id),
            type=sql.Identifier(source.columns.aggregate_type),
            field=sql.Identifier(field),
            leaf=sql.Identifier(leaf["schema"], leaf["name"]),
            first=sql.Literal(f"({max(0, leaf['pages'] - pages)},0)"),
        )
        for leaf in leaves
    ]
    statement = sql.SQL(MOVED).format(newest=sql.SQL(" union all ").join(newest))
    values: dict[str, Any] = {"kind": kind, "rows": SAMPLE_ROWS}
    return int(connection.execute(statement, values).fetchall()[0]["keys"])
