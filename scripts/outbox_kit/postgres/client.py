"""PostgreSQL, one function per question or command, no policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from outbox_kit.errors import OutboxKitError, RefusedError, RejectedError, UnreachableError
from outbox_kit.pipeline import Source, SourceDatabase

CONNECT_TIMEOUT_S = 10
SLOT_TIMEOUT_MS = 60_000

Row = dict[str, Any]
Connection = psycopg.Connection[Row]

TABLE_COLUMNS: LiteralString = """
    select a.attname as name, format_type(a.atttypid, a.atttypmod) as type
    from pg_attribute a
    where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped order by a.attnum"""
PUBLICATION: LiteralString = """
    select p.oid::bigint as oid, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot,
           coalesce((select array_agg(schemaname || '.' || tablename order by 1)
                     from pg_publication_tables where pubname = p.pubname), '{}') as tables,
           -- Row filters came with PostgreSQL 15; asked through JSON, the query is the same before.
           exists (select 1 from pg_publication_tables t
                   where t.pubname = p.pubname and to_jsonb(t) ->> 'rowfilter' is not null) as filtered
    from pg_publication p where p.pubname = %s"""
SLOT: LiteralString = """
    select slot_name, plugin, database, active, wal_status,
           confirmed_flush_lsn::text as confirmed_flush_lsn,
           case when pg_is_in_recovery() then 0
                else pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint end as retained_bytes
    from pg_replication_slots where slot_name = %s"""
SERVER: LiteralString = """
    select current_setting('server_version_num')::int as version, current_setting('wal_level') as wal_level,
           current_database() as database,
           (select system_identifier::text from pg_control_system()) as system_identifier,
           pg_is_in_recovery() as standby,
           case when pg_is_in_recovery() then (select timeline_id from pg_control_checkpoint())
                -- On a primary the WAL file's name is exact; the control file lags until the next checkpoint.
                else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int end as timeline,
           (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end
            - '0/0')::bigint as wal_position"""
GRANTS: LiteralString = """
    select rolcanlogin as can_login, rolreplication or rolsuper as can_replicate,
           coalesce(has_table_privilege(rolname, to_regclass(%(table)s), 'select'), false)
             and has_schema_privilege(rolname, %(schema)s, 'usage') as can_read
    from pg_roles where rolname = %(role)s"""
WRITERS: LiteralString = """
    select pid, coalesce(application_name, '') as application, state,
           extract(epoch from now() - xact_start)::int as seconds
    from pg_stat_activity
    where backend_xid is not null and pid <> pg_backend_pid() order by xact_start limit 3"""


@contextmanager
def connected(database: SourceDatabase) -> Iterator[Connection]:
    """An autocommit connection as the owner. Raises UnreachableError; a server's refusal becomes RejectedError."""
    where = f"{database.host}:{database.port}/{database.database}"
    try:
        connection = psycopg.connect(
            host=database.host,
            port=database.port,
            dbname=database.database,
            user=database.admin.user,
            password=database.admin.password.get_secret_value(),
            connect_timeout=CONNECT_TIMEOUT_S,
            application_name="outbox-kit",
            # Another session's lock on the table must not hold us (and with us every writer) for ever.
            options="-c lock_timeout=10s -c statement_timeout=30s",
            autocommit=True,
            row_factory=dict_row,
        )
    except psycopg.OperationalError as error:
        message = f"cannot connect to PostgreSQL at {where} as {database.admin.user!r}: {_first_line(error)}"
        raise UnreachableError(message, "check source.host, port, database and admin in the environment file") from None
    try:
        with connection:
            yield connection
    except OutboxKitError:
        raise
    except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled) as error:
        message = f"PostgreSQL at {where}: {_first_line(error)}"
        raise RejectedError(message, "another session holds a lock: see pg_locks and pg_stat_activity") from error
    except psycopg.Error as error:
        raise RejectedError(f"PostgreSQL at {where}: {_first_line(error)}", "see the server's log") from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def server(connection: Connection) -> Row:
    """version, database, wal_level, system_identifier, timeline, standby, wal_position (bytes)."""
    return connection.execute(SERVER).fetchall()[0]


def table_columns(connection: Connection, table: str) -> dict[str, str]:
    """Column types by name; empty when there is no such table."""
    return {row["name"]: row["type"] for row in connection.execute(TABLE_COLUMNS, (table,))}


def publication(connection: Connection, name: str) -> Row | None:
    """oid, what it publishes, and its tables as schema.table."""
    return connection.execute(PUBLICATION, (name,)).fetchone()


def slot(connection: Connection, name: str) -> Row | None:
    """plugin, database, active, wal_status, confirmed_flush_lsn, retained_bytes."""
    return connection.execute(SLOT, (name,)).fetchone()


def grants(connection: Connection, role: str, table: str) -> Row | None:
    """can_login, can_replicate, can_read of a role; None when there is no such role."""
    values = {"role": role, "table": table, "schema": table.split(".", maxsplit=1)[0]}
    return connection.execute(GRANTS, values).fetchone()


def create_table(connection: Connection, source: Source) -> None:
    """The outbox table after docs/contract.md, and its schema where that is missing."""
    schema = sql.Identifier(source.table.split(".")[0])
    connection.execute(sql.SQL("create schema if not exists {}").format(schema))
    names = {key: sql.Identifier(value) for key, value in source.columns.model_dump().items()}
    connection.execute(
        sql.SQL("""
            create table {table} (
              {id} uuid primary key default gen_random_uuid(),
              seq bigint generated always as identity,
              {aggregate_type} text not null,
              {aggregate_id} text not null check ({aggregate_id} <> ''),
              {event_type} text not null,
              {payload} jsonb,
              {headers} jsonb,
              {created_at} timestamptz not null default now())
        """).format(table=_qualified(source.table), **names)
    )


def create_publication(connection: Connection, source: Source) -> None:
    """Inserts only: updates and deletes of outbox rows never cross the wire."""
    connection.execute(
        sql.SQL(
            "create publication {} for table {} with (publish = 'insert', publish_via_partition_root = true)"
        ).format(sql.Identifier(source.publication), _qualified(source.table))
    )


def create_slot(connection: Connection, name: str, *, failover: bool) -> None:
    """A pgoutput slot. It waits for every open writing transaction: bounded, and says for whom it waited."""
    arguments = sql.SQL("%s, 'pgoutput', false, false, true") if failover else sql.SQL("%s, 'pgoutput'")
    try:
        with connection.transaction():
            connection.execute(sql.SQL("set local statement_timeout = {}").format(SLOT_TIMEOUT_MS))
            connection.execute(sql.SQL("select pg_create_logical_replication_slot({})").format(arguments), (name,))
    except psycopg.errors.QueryCanceled:
        writers = [
            f"pid {row['pid']} ({row['application'] or 'no name'}, {row['state']}, {row['seconds']} s)"
            for row in connection.execute(WRITERS)
        ]
        message = f"slot {name!r} was not made within {SLOT_TIMEOUT_MS // 1000} s: open writing transactions"
        raise RefusedError(
            f"{message}: {', '.join(writers) or 'gone by now'}", "end them, then run apply again"
        ) from None


def grant_read(connection: Connection, role: str, table: str) -> None:
    """What the connector's role needs of the table."""
    schema = sql.Identifier(table.split(".", maxsplit=1)[0])
    connection.execute(sql.SQL("grant usage on schema {} to {}").format(schema, sql.Identifier(role)))
    connection.execute(sql.SQL("grant select on {} to {}").format(_qualified(table), sql.Identifier(role)))


def _qualified(table: str) -> sql.Identifier:
    return sql.Identifier(*table.split("."))
