"""Connect to PostgreSQL, and run catalog queries and commands, one per function."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from outbox_common.error_text import postgres_message
from outbox_events.errors import RefusedError, RejectedError, UnreachableError
from outbox_kit.pipeline import Login, SourceDatabase
from outbox_kit.postgres import ddl

CONNECT_TIMEOUT_S = 10
MIN_CONNECT_TIMEOUT_S = 2  # libpq treats 1 as 2
# The wait for a lock is limited, because later writers of the table queue behind the waiting statement.
STATEMENT_TIMEOUTS = "-c lock_timeout=10s -c statement_timeout=30s"
# psycopg cannot parse timestamps in another DateStyle, which a role or database can have.
DATE_STYLE = "-c datestyle=ISO"
SLOT_TIMEOUT_MS = 60_000
# The server enforces the timeouts above. With Linux's defaults, the client notices a lost connection after two hours.
KEEPALIVES: dict[str, Any] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}

Row = dict[str, Any]
Connection = psycopg.Connection[Row]

TABLE_COLUMNS: LiteralString = """
    select a.attname as name, format_type(a.atttypid, a.atttypmod) as type
    from pg_attribute a
    where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped order by a.attnum"""
TABLE_OID: LiteralString = "select to_regclass(%s)::oid::bigint as oid"
RELAY_TABLE: LiteralString = "select to_regclass(%s) is not null as found"
# With to_jsonb, the query is also valid for a table of an earlier version.
RELAY = sql.SQL(
    "select source_epoch, prefix, to_jsonb(r) ->> 'cluster_id' as cluster_id from {}.outbox_relay r where outbox = %s"
)
RELAY_SESSIONS: LiteralString = (
    "select pid from pg_stat_activity where datname = current_database() and application_name = %s order by pid"
)
PUBLICATION: LiteralString = """
    select p.oid::bigint as oid, p.pubname as name, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot,
           p.puballtables, obj_description(p.oid, 'pg_publication') as comment,
           coalesce((select array_agg(schemaname || '.' || tablename order by 1)
                     from pg_publication_tables where pubname = p.pubname), '{}') as tables,
           -- PostgreSQL 14 has no column `rowfilter`. With to_jsonb, the query is also valid on PostgreSQL 14.
           exists (select 1 from pg_publication_tables t
                   where t.pubname = p.pubname and to_jsonb(t) ->> 'rowfilter' is not null) as filtered
    from pg_publication p where p.pubname = %s"""
SERVER: LiteralString = """
    select current_setting('server_version_num')::int as version, current_setting('wal_level') as wal_level,
           current_database() as database,
           pg_is_in_recovery() as is_standby,
           -- WAL file names contain the current timeline. The control file has a new one only after a checkpoint.
           case when not pg_is_in_recovery()
                then ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int end as timeline,
           (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end
            - '0/0')::bigint as wal_position"""
# These two queries are not part of SERVER, because PostgreSQL checks EXECUTE on all functions before it runs a query.
# PUBLIC has EXECUTE on these functions unless the privilege was revoked.
SYSTEM_IDENTIFIER: LiteralString = "select system_identifier::text as value from pg_control_system()"
STANDBY_TIMELINE: LiteralString = "select timeline_id as value from pg_control_checkpoint()"
# On Amazon RDS and Aurora, the attribute REPLICATION cannot be set. Members of rds_replication can replicate.
ROLE: LiteralString = """
    select rolcanlogin as can_login,
           rolreplication or rolsuper or coalesce(
             (select pg_has_role(pg_roles.oid, managed.oid, 'member')
              from pg_roles managed where managed.rolname = 'rds_replication'), false) as can_replicate,
           coalesce(has_table_privilege(rolname, to_regclass(%(table)s), 'select'), false)
             and has_schema_privilege(rolname, %(schema)s, 'usage') as can_read
    from pg_roles where rolname = %(role)s"""
OPEN_TRANSACTIONS: LiteralString = """
    select pid, coalesce(application_name, '') as application, state, '' as gid,
           extract(epoch from now() - xact_start)::int as seconds
    from pg_stat_activity where backend_xid is not null and pid <> pg_backend_pid()
    union all
    select null, '', '', gid, extract(epoch from now() - prepared)::int from pg_prepared_xacts
    order by seconds desc limit 3"""
DOCTOR_HINT = "run `outbox doctor`, which prints the SQL that grants every missing privilege"
READ_ONLY_HINT = (
    "check that source.host is the primary; if default_transaction_read_only is set, run "
    "`alter database ... reset default_transaction_read_only` or `alter role ... reset default_transaction_read_only`"
)
END_TRANSACTIONS_HINT = (
    "end these transactions (a prepared transaction with COMMIT PREPARED or ROLLBACK PREPARED), "
    "then run the command again"
)
# A standby has no insert position, so the result on a standby is null.
INSERT_POSITION: LiteralString = """
    select (case when not pg_is_in_recovery() then pg_current_wal_insert_lsn() end - '0/0')::bigint as lsn"""
# Every connector template excludes messages with this prefix, so a heartbeat message does not produce a record.
HEARTBEAT: LiteralString = "select pg_logical_emit_message(true, 'outbox-heartbeat', '')"


@contextmanager
def connected(
    database: SourceDatabase, login: Login | None = None, *, seconds: float | None = None
) -> Iterator[Connection]:
    """Open an autocommit connection, by default with the login `source.admin`.

    If `seconds` is set, it limits the connection attempt and each statement, in place of the default timeouts.
    Raises UnreachableError if the connection fails, and RejectedError if a statement in the context fails.
    """
    address = f"{database.host}:{database.port}/{database.database}"
    connection = _connect(database, login or database.admin, address, seconds)
    try:
        with connection:
            yield connection
    except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled) as error:
        message = f"PostgreSQL at {address}: {postgres_message(error)}"
        hint = "another session may hold a lock (see pg_locks), or the statement is slow (see pg_stat_activity)"
        raise RejectedError(message, hint) from error
    except psycopg.Error as error:
        message = f"PostgreSQL at {address}: {postgres_message(error)}"
        hints: dict[type[psycopg.Error], str] = {
            psycopg.errors.InsufficientPrivilege: DOCTOR_HINT,
            psycopg.errors.ReadOnlySqlTransaction: READ_ONLY_HINT,
        }
        raise RejectedError(message, hints.get(type(error), "see the log of PostgreSQL")) from error


def _connect(database: SourceDatabase, login: Login, address: str, seconds: float | None) -> Connection:
    timeouts = STATEMENT_TIMEOUTS if seconds is None else f"-c statement_timeout={math.ceil(seconds * 1000)}"
    try:
        return psycopg.connect(
            host=database.host,
            port=database.port,
            dbname=database.database,
            user=login.user,
            password=login.password.get_secret_value(),
            sslmode=database.sslmode,  # with None, libpq uses PGSSLMODE or its default
            sslrootcert=None if database.sslrootcert is None else str(database.sslrootcert),
            connect_timeout=CONNECT_TIMEOUT_S if seconds is None else max(MIN_CONNECT_TIMEOUT_S, math.ceil(seconds)),
            application_name="outbox-kit",
            **KEEPALIVES,
            options=f"{DATE_STYLE} {timeouts}",
            autocommit=True,
            prepare_threshold=None,  # poolers in transaction mode do not support prepared statements
            row_factory=dict_row,
        )
    except psycopg.OperationalError as error:
        message = f"cannot connect to PostgreSQL at {address} as {login.user!r}: {postgres_message(error)}"
        hint = "check source.host, source.port, source.database and the login in the environment file"
        if "permission denied for database" in message:
            hint = "run the script that `outbox render --format sql` prints, or grant CONNECT on the database"
        raise UnreachableError(message, hint) from None


def read_server(connection: Connection) -> Row:
    """Return version, database, wal_level, is_standby, timeline (None on a standby) and wal_position (in bytes)."""
    return connection.execute(SERVER).fetchall()[0]


def read_system_identifier(connection: Connection) -> str:
    """Return the system identifier of the database cluster. Raises RejectedError if the login lacks the privilege."""
    return str(_control_value(connection, SYSTEM_IDENTIFIER, "pg_control_system()"))


def read_insert_position(connection: Connection) -> int | None:
    """Return the LSN of the end of the WAL, which is above the LSN of every visible commit; None on a standby.

    In contrast, the `wal_position` of read_server() excludes unwritten WAL, which can contain visible commits.
    """
    lsn: int | None = connection.execute(INSERT_POSITION).fetchall()[0]["lsn"]
    return lsn


@contextmanager
def snapshot(connection: Connection) -> Iterator[int | None]:
    """Open a transaction whose queries all see the same commits. Yield an LSN above these commits; None on a standby.

    An LSN that is read after a long query would also be above commits that the query has not seen.
    """
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read")
        yield read_insert_position(connection)


def read_standby_timeline(connection: Connection) -> int:
    """Return the timeline of a standby. Raises RejectedError if the login lacks the privilege to read it."""
    return int(_control_value(connection, STANDBY_TIMELINE, "pg_control_checkpoint()"))


def _control_value(connection: Connection, query: LiteralString, function: str) -> str | int:
    try:
        with connection.transaction():
            value: str | int = connection.execute(query).fetchall()[0]["value"]
    except psycopg.errors.InsufficientPrivilege:
        user = connection.info.user
        raise RejectedError(
            f"role {user!r} has no permission to execute {function}, which outbox-kit needs to identify the database",
            f"run `grant execute on function {function} to {sql.Identifier(user).as_string(None)}` as an administrator",
        ) from None
    return value


def read_column_types(connection: Connection, table: str) -> dict[str, str]:
    """Return a mapping from each column's name to its type, which is empty if the table does not exist."""
    return {row["name"]: row["type"] for row in connection.execute(TABLE_COLUMNS, (ddl.quoted_text(table),))}


def read_table_oid(connection: Connection, table: str) -> int | None:
    """Return the oid of the table; None if the table does not exist. A recreated table has a different oid."""
    oid: int | None = connection.execute(TABLE_OID, (ddl.quoted_text(table),)).fetchall()[0]["oid"]
    return oid


def has_rows(connection: Connection, table: str) -> bool:
    """Return whether a table has rows. Return True if the login lacks SELECT, and False if there is no table."""
    query = sql.SQL("select exists (select from {}) as found").format(ddl.qualified_name(table))
    try:
        with connection.transaction():
            return bool(connection.execute(query).fetchall()[0]["found"])
    except psycopg.errors.InsufficientPrivilege:
        return True
    except psycopg.errors.UndefinedTable:
        return False


class Relay(NamedTuple):
    """Polling relay of an outbox table. The source epoch is 0 if no relay was started."""

    source_epoch: int = 0
    prefix: str = ""
    cluster_id: str | None = None
    """Kafka cluster to which the relay sends."""

    def is_of_other(self, prefix: str, cluster_id: str | None) -> bool:
        """Return whether the relay sends to other topics than those of the prefix. An unknown cluster is ignored."""
        is_other_cluster = None not in (cluster_id, self.cluster_id) and cluster_id != self.cluster_id
        return self.source_epoch > 0 and (self.prefix != prefix or is_other_cluster)


NO_RELAY = Relay()


def read_relay(connection: Connection, outbox: str) -> Relay:
    """Return the polling relay of the outbox table."""
    schema = ddl.schema_of(outbox)
    parameters = (f"{schema.as_string(None)}.outbox_relay",)
    if not connection.execute(RELAY_TABLE, parameters).fetchall()[0]["found"]:
        return NO_RELAY
    found = connection.execute(RELAY.format(schema), (outbox,)).fetchone()
    return Relay(**found) if found else NO_RELAY


def relay_application(outbox: str) -> str:
    """Return the application_name of the sessions of a polling relay."""
    return f"outbox-kit relay {outbox}"[:63]


def relay_sessions(connection: Connection, outbox: str) -> list[int]:
    """Return the pids of the sessions of the polling relays of a table."""
    rows = connection.execute(RELAY_SESSIONS, (relay_application(outbox),)).fetchall()
    return [row["pid"] for row in rows]


def read_publication(connection: Connection, name: str) -> Row | None:
    """Return a publication's oid, name, comment, options, `tables` and `filtered` (has a row filter), or None."""
    return connection.execute(PUBLICATION, (name,)).fetchone()


def read_role(connection: Connection, role: str, table: str) -> Row | None:
    """Return the flags can_login, can_replicate and can_read (the table) of a role; None if the role does not exist."""
    parameters = {"role": role, "table": ddl.quoted_text(table), "schema": table.split(".", maxsplit=1)[0]}
    return connection.execute(ROLE, parameters).fetchone()


def create_slot(connection: Connection, name: str, *, failover: bool) -> None:
    """Create a pgoutput slot. PostgreSQL first waits until every open writing transaction has ended.

    Raises RefusedError after SLOT_TIMEOUT_MS, with a message that names the sessions whose transactions are still open.
    """
    try:
        with connection.transaction():
            connection.execute(sql.SQL("set local statement_timeout = {}").format(SLOT_TIMEOUT_MS))
            # Otherwise the lock timeout of the session would end the wait for transactions earlier.
            connection.execute("set local lock_timeout = 0")
            connection.execute(ddl.create_slot(name, failover=failover))
    except psycopg.errors.QueryCanceled:
        sessions = ", ".join(describe_session(row) for row in connection.execute(OPEN_TRANSACTIONS))
        message = f"slot {name!r} was not created within {SLOT_TIMEOUT_MS // 1000} s, because transactions were open"
        hint = END_TRANSACTIONS_HINT if sessions else "run the command again"
        raise RefusedError(f"{message} ({sessions or 'they have ended now'})", hint) from None


def describe_session(row: Row) -> str:
    """Return a description of a session or a prepared transaction. `row` is a result row of OPEN_TRANSACTIONS."""
    if row.get("gid"):
        return f"prepared transaction {row['gid']!r} ({row['seconds']} s)"
    return f"pid {row['pid']} ({row['application'] or 'no name'}, {row['state']}, {row['seconds']} s)"


def commit_heartbeat(connection: Connection) -> None:
    """Commit a transaction with a heartbeat message, for which the connector does not produce a record."""
    connection.execute(HEARTBEAT)


def drop_slot(connection: Connection, name: str) -> None:
    connection.execute("select pg_drop_replication_slot(%s)", (name,))


def drop_publication(connection: Connection, name: str) -> None:
    connection.execute(sql.SQL("drop publication {}").format(sql.Identifier(name)))
