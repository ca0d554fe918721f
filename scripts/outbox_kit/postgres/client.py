"""PostgreSQL, one function per question or command, no policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from outbox_kit.errors import OutboxKitError, RefusedError, RejectedError, UnreachableError
from outbox_kit.pipeline import Login, Pipeline, Source, SourceDatabase
from outbox_kit.postgres import ddl

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
           pg_is_in_recovery() as standby,
           -- On a primary the WAL file's name is exact; the control file lags until the next checkpoint.
           case when not pg_is_in_recovery()
                then ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int end as timeline,
           (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end
            - '0/0')::bigint as wal_position"""
# Each in a query of its own: whether a function may be called is checked before the query runs. Everybody may, unless
# it was revoked.
IDENTIFIER: LiteralString = "select system_identifier::text as value from pg_control_system()"
STANDBY_TIMELINE: LiteralString = "select timeline_id as value from pg_control_checkpoint()"
# Amazon RDS and Aurora give replication by membership; a role's own attribute cannot be set there.
GRANTS: LiteralString = """
    select rolcanlogin as can_login,
           rolreplication or rolsuper or coalesce(
             (select pg_has_role(pg_roles.oid, managed.oid, 'member')
              from pg_roles managed where managed.rolname = 'rds_replication'), false) as can_replicate,
           coalesce(has_table_privilege(rolname, to_regclass(%(table)s), 'select'), false)
             and has_schema_privilege(rolname, %(schema)s, 'usage') as can_read
    from pg_roles where rolname = %(role)s"""
WRITERS: LiteralString = """
    select pid, coalesce(application_name, '') as application, state,
           extract(epoch from now() - xact_start)::int as seconds
    from pg_stat_activity
    where backend_xid is not null and pid <> pg_backend_pid() order by xact_start limit 3"""


# Heartbeats' own prefix, which every template leaves out: no record comes of it.
TRANSACTION: LiteralString = "select pg_logical_emit_message(true, 'outbox-heartbeat', '')"


@contextmanager
def connected(database: SourceDatabase, login: Login | None = None) -> Iterator[Connection]:
    """An autocommit connection, as the owner unless another `login` is given.

    Raises UnreachableError; a server's refusal becomes RejectedError.
    """
    login = login or database.admin
    where = f"{database.host}:{database.port}/{database.database}"
    try:
        connection = psycopg.connect(
            host=database.host,
            port=database.port,
            dbname=database.database,
            user=login.user,
            password=login.password.get_secret_value(),
            sslmode=database.sslmode,  # None is left out: libpq's own default, or PGSSLMODE
            sslrootcert=None if database.sslrootcert is None else str(database.sslrootcert),
            connect_timeout=CONNECT_TIMEOUT_S,
            application_name="outbox-kit",
            # Another session's lock on the table must not hold us (and with us every writer) for ever.
            options="-c lock_timeout=10s -c statement_timeout=30s",
            autocommit=True,
            row_factory=dict_row,
        )
    except psycopg.OperationalError as error:
        message = f"cannot connect to PostgreSQL at {where} as {login.user!r}: {_first_line(error)}"
        raise UnreachableError(
            message, "check source.host, port, database and the login in the environment file"
        ) from None
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
    """version, database, wal_level, timeline (None of a standby), standby, wal_position (bytes)."""
    return connection.execute(SERVER).fetchall()[0]


def system_identifier(connection: Connection) -> str:
    """What tells this cluster from every other one. Raises RejectedError where the login may not ask."""
    return str(_control(connection, IDENTIFIER, "pg_control_system()"))


def standby_timeline(connection: Connection) -> int:
    """The timeline of a standby. Raises RejectedError where the login may not ask."""
    return int(_control(connection, STANDBY_TIMELINE, "pg_control_checkpoint()"))


def _control(connection: Connection, query: LiteralString, function: str) -> str | int:
    try:
        with connection.transaction():
            value: str | int = connection.execute(query).fetchall()[0]["value"]
    except psycopg.errors.InsufficientPrivilege:
        user = connection.info.user
        raise RejectedError(
            f"{user!r} may not execute {function}: which database this is cannot be told",
            f"as an administrator: grant execute on function {function} to {sql.Identifier(user).as_string(None)}",
        ) from None
    return value


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


def create_table(connection: Connection, pipeline: Pipeline) -> None:
    """The outbox table after docs/contract.md, and its schema where that is missing."""
    connection.execute(ddl.create_schema(ddl.schema_of(pipeline.source.table)))
    connection.execute(ddl.create_table(pipeline))


def create_publication(connection: Connection, source: Source) -> None:
    """Inserts only: updates and deletes of outbox rows never cross the wire."""
    connection.execute(ddl.create_publication(source))


def create_slot(connection: Connection, name: str, *, failover: bool) -> None:
    """A pgoutput slot. It waits for every open writing transaction: bounded, and says for whom it waited."""
    try:
        with connection.transaction():
            connection.execute(sql.SQL("set local statement_timeout = {}").format(SLOT_TIMEOUT_MS))
            connection.execute(ddl.create_slot(name, failover=failover))
    except psycopg.errors.QueryCanceled:
        writers = [
            f"pid {row['pid']} ({row['application'] or 'no name'}, {row['state']}, {row['seconds']} s)"
            for row in connection.execute(WRITERS)
        ]
        message = f"slot {name!r} was not made within {SLOT_TIMEOUT_MS // 1000} s: open writing transactions"
        raise RefusedError(
            f"{message}: {', '.join(writers) or 'gone by now'}", "end them, then run apply again"
        ) from None


def emit_transaction(connection: Connection) -> None:
    """Commit a transaction that a slot's reader sees and makes no record of."""
    connection.execute(TRANSACTION)


def grant_read(connection: Connection, role: str, table: str) -> None:
    """What the connector's role needs of the table."""
    for statement in ddl.grant_read(role, table):
        connection.execute(statement)
