"""The connection of a run to PostgreSQL, and the lock that it holds for as long as it lives."""

from __future__ import annotations

from typing import TypedDict

import psycopg
from psycopg.rows import TupleRow

from outbox_spark.errors import OverlapError, UnreachableError
from outbox_spark.jobs.model import PostgresTarget, Source
from outbox_spark.session.error_redaction import postgres_words

APPLICATION_NAME = "outbox-materialize"
CONNECT_SECONDS = 10
LOCK_WAIT = "60s"
# Of the server's side: a driver that died without a word would keep its lock for two hours, Linux's default.
_KEEPALIVE = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
# Of the merge. Reading by index is near what reading in order costs once a table is in memory; with the default
# the planner reads all of a table of 1M rows to find 10,000 keys. What compiling statements costs, they do not.
_MERGE_SETTINGS = {"lock_timeout": LOCK_WAIT, "random_page_cost": "1.1", "jit": "off"}
_WORK_MEM = 64 * 1024 * 1024


class Parameters(TypedDict):
    """How to connect, for psycopg."""

    host: str
    port: int
    dbname: str
    user: str
    password: str
    connect_timeout: int
    application_name: str
    sslmode: str | None
    sslrootcert: str | None


def connection_parameters(target: PostgresTarget) -> Parameters:
    """What the driver connects with."""
    return {
        "host": target.host,
        "port": target.port,
        "dbname": target.database,
        "user": target.user,
        "password": target.password,
        "connect_timeout": CONNECT_SECONDS,
        "application_name": APPLICATION_NAME,
        # None is left out: libpq's own default, or PGSSLMODE.
        "sslmode": target.sslmode,
        "sslrootcert": target.sslrootcert,
    }


def jdbc_url(target: PostgresTarget) -> str:
    """Where executors connect to."""
    return f"jdbc:postgresql://{target.host}:{target.port}/{target.database}"


def jdbc_settings(target: PostgresTarget) -> dict[str, str]:
    """What executors connect with, for the JDBC driver."""
    return {
        "user": target.user,
        "password": target.password,
        "ApplicationName": APPLICATION_NAME,
        "connectTimeout": str(CONNECT_SECONDS),
        "tcpKeepAlive": "true",
        # Its own words print the rows of a batch that failed.
        "logServerErrorDetail": "false",
        **jdbc_tls(target),
    }


def jdbc_tls(server: PostgresTarget | Source) -> dict[str, str]:
    """TLS for the JDBC driver, which knows it by libpq's names."""
    settings = {"sslmode": server.sslmode, "sslrootcert": server.sslrootcert}
    return {name: value for name, value in settings.items() if value is not None}


def connect(target: PostgresTarget) -> psycopg.Connection[TupleRow]:
    """Connect, in autocommit: no transaction stays open, and holds back vacuum, while Spark works.

    Raises UnreachableError.
    """
    try:
        connection = psycopg.connect(**connection_parameters(target), autocommit=True, keepalives_idle=30)
        for name, value in _KEEPALIVE.items():
            connection.execute("select set_config(%s, %s, false)", (name, value))
    except psycopg.Error as error:
        raise unreachable(target, error) from error
    return connection


def unreachable(target: PostgresTarget, error: psycopg.Error) -> UnreachableError:
    """What is said when the server cannot be asked."""
    message = f"PostgreSQL at {target.host}:{target.port}/{target.database}: {postgres_words(error)}"
    return UnreachableError(message, "check the target in the environment or job file")


def prepare_merge(connection: psycopg.Connection[TupleRow]) -> None:
    """Settings for the rest of the transaction."""
    for name, value in _MERGE_SETTINGS.items():
        connection.execute("select set_config(%s, %s, true)", (name, value))
    for name in ("work_mem", "maintenance_work_mem"):
        more = "select set_config(%s, greatest(pg_size_bytes(current_setting(%s)), %s) / 1024 || 'kB', true)"
        connection.execute(more, (name, name, _WORK_MEM))


def lock(connection: psycopg.Connection[TupleRow], key: str, table: str) -> None:
    """One run per table: a session lock, which the server lets go of when the connection ends.

    Raises OverlapError, which names the holder.
    """
    row = connection.execute("select pg_try_advisory_lock(hashtextextended(%s, 0))", (key,)).fetchone()
    if row is None or not row[0]:
        message = f"another run holds table {table}{_holder(connection, key)}"
        hint = f"wait for it; the server shows it in pg_stat_activity as {APPLICATION_NAME}"
        raise OverlapError(message, hint)


def unlock(connection: psycopg.Connection[TupleRow], key: str) -> None:
    """Let go before the connection closes: the server ends the session some time after."""
    connection.execute("select pg_advisory_unlock(hashtextextended(%s, 0))", (key,))


def _holder(connection: psycopg.Connection[TupleRow], key: str) -> str:
    """Who holds the lock, in words; empty when it has just been let go of.

    Address and time are NULL for a user who may not see other users' sessions.
    """
    row = connection.execute(
        """
        select l.pid, host(a.client_addr), to_char(a.backend_start at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS')
        from hashtextextended(%s, 0) k, pg_locks l left join pg_stat_activity a on a.pid = l.pid
        where l.locktype = 'advisory' and l.granted and l.objsubid = 1
          and l.database = (select oid from pg_database where datname = current_database())
          and l.classid::bigint = (k >> 32) & 4294967295 and l.objid::bigint = k & 4294967295
        """,
        (key,),
    ).fetchone()
    if row is None:
        return ""
    pid, address, since = row
    return f": pid {pid}" + (f", from {address}" if address else "") + (f", since {since} UTC" if since else "")
