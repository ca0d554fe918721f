"""Connect to a PostgreSQL target with psycopg or JDBC, lock tables, and set parameters for the merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow, scalar_row
from psycopg.sql import SQL, Composed
from pyspark.sql import DataFrame, SparkSession

from outbox_common.error_text import postgres_message
from outbox_events.errors import UnreachableError
from outbox_spark.errors import OverlapError
from outbox_spark.jobs.model import PostgresTarget

APPLICATION_NAME = "outbox-materialize"
CONNECT_SECONDS = 10
LOCK_TIMEOUT = "60s"
_JDBC_DRIVER = "org.postgresql.Driver"
# TCP keepalive of the server. With Linux's defaults, the server would hold an unreachable driver's lock for two hours.
_KEEPALIVE_SETTINGS = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
# psycopg cannot parse timestamps in another DateStyle, which a role or database can have.
_SESSION_SETTINGS = {**_KEEPALIVE_SETTINGS, "lock_timeout": LOCK_TIMEOUT, "datestyle": "ISO"}
# The same limits for the driver's side of the connection.
_CLIENT_KEEPALIVES: dict[str, Any] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
# With the default random_page_cost, the planner scans a table of 1M rows to find 10,000 keys, although index access
# costs little more than sequential access if the table is in memory. JIT compilation would take longer than it saves.
_MERGE_SETTINGS = {"lock_timeout": LOCK_TIMEOUT, "random_page_cost": "1.1", "jit": "off"}
_READ_ONLY = "-c datestyle=ISO -c default_transaction_read_only=on -c statement_timeout=60s"
_FETCHED_ROWS = 10_000
TASK_BLOCKS = 4_000
"""Minimum number of blocks of a table (of 8 kB) for each task of read_blocks."""
CTID_COLUMN = "outbox_ctid"
_TARGET_HINT = "check the server, and the target in the environment or job file"
_LOGIN_HINT = (
    "check the target's user, and the environment variable with its password, which the environment or job file names"
)
_MIN_WORK_MEM_BYTES = 64 * 1024 * 1024

Connection = psycopg.Connection[TupleRow]


def connection_parameters(target: PostgresTarget) -> dict[str, Any]:
    """Return the parameters with which Spark's driver connects to the target."""
    return {
        "host": target.host,
        "port": target.port,
        "dbname": target.database,
        "user": target.user,
        "password": target.password,
        "connect_timeout": CONNECT_SECONDS,
        "application_name": APPLICATION_NAME,
        # psycopg ignores None, so libpq's default or PGSSLMODE applies.
        "sslmode": target.sslmode,
        "sslrootcert": target.sslrootcert,
    }


def jdbc_url(target: PostgresTarget) -> str:
    """Return the JDBC URL of the target for executors."""
    return f"jdbc:postgresql://{target.host}:{target.port}/{target.database}"


def jdbc_settings(target: PostgresTarget) -> dict[str, str]:
    """Return the JDBC properties with which executors connect to the target."""
    return {
        "user": target.user,
        "password": target.password,
        "ApplicationName": APPLICATION_NAME,
        "connectTimeout": str(CONNECT_SECONDS),
        "tcpKeepAlive": "true",
        # The detail of a server error can quote rows, which must not be in the executors' logs.
        "logServerErrorDetail": "false",
        # The TLS properties have the same names as in libpq.
        **{name: value for name in ("sslmode", "sslrootcert") if (value := getattr(target, name)) is not None},
    }


def connect(target: PostgresTarget) -> Connection:
    """Connect in autocommit mode, because an open transaction would prevent VACUUM from removing dead rows.

    Raises UnreachableError if the connection fails.
    """
    try:
        connection = psycopg.connect(**connection_parameters(target), autocommit=True, **_CLIENT_KEEPALIVES)
        connection.prepare_threshold = None  # another run can change the types of columns
        for name, value in _SESSION_SETTINGS.items():
            connection.execute("select set_config(%s, %s, false)", (name, value))
    except psycopg.Error as error:
        raise _unreachable(target, error) from error
    return connection


class KeptConnections:
    """Connections to targets that the runs of one thread use one after another."""

    def __init__(self) -> None:
        self._idle: dict[PostgresTarget, Connection] = {}

    def take(self, target: PostgresTarget) -> Connection:
        """Return the idle connection to the target if it can be used, or a new one. Raises UnreachableError."""
        connection = self._idle.pop(target, None)
        if connection is not None:
            try:
                connection.execute("select 1")
            except psycopg.Error:
                connection.close()
            else:
                return connection
        return connect(target)

    def put(self, target: PostgresTarget, connection: Connection) -> None:
        """Keep a connection without locks or an open transaction for the next run."""
        if connection.info.transaction_status != TransactionStatus.IDLE or target in self._idle:
            connection.close()
        else:
            self._idle[target] = connection

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.popitem()[1].close()


@contextmanager
def read_only_connection(target: PostgresTarget, hint: str = _TARGET_HINT) -> Iterator[Connection]:
    """Connect for short queries without locks. Raises UnreachableError for any error of psycopg inside `with`."""
    try:
        parameters = connection_parameters(target)
        with psycopg.connect(**parameters, autocommit=True, options=_READ_ONLY) as connection:
            yield connection
    except psycopg.Error as error:
        raise _unreachable(target, error, hint) from error


def _unreachable(target: PostgresTarget, error: psycopg.Error, hint: str = _TARGET_HINT) -> UnreachableError:
    message = f"PostgreSQL at {target.host}:{target.port}/{target.database}: {postgres_message(error)}"
    return UnreachableError(message, _LOGIN_HINT if "authentication failed" in message else hint)


def scalar(connection: Connection, query: str | SQL | Composed, parameters: Sequence[object] = ()) -> Any:  # noqa: ANN401
    """Return the first column of the first row of a query; None if there are no rows."""
    return connection.cursor(row_factory=scalar_row).execute(query, parameters).fetchone()


def read_query(spark: SparkSession, target: PostgresTarget, query: str) -> DataFrame:
    """Return the result of a query, which is executed as one read-only statement and therefore reads one snapshot."""
    options = {**_read_settings(target), "url": _read_url(target), "query": query}
    return spark.read.format("jdbc").options(**options).load()


def read_blocks(spark: SparkSession, target: PostgresTarget, query: str, block_count: int) -> DataFrame:
    """Return the result of a query of a table that is locked, read by several tasks with a connection each.

    Each task reads a range of the table's `block_count` blocks. The query must select `ctid` as CTID_COLUMN.
    """
    count = max(1, min(spark.sparkContext.defaultParallelism, block_count // TASK_BLOCKS))
    bounds = [block_count * number // count for number in range(1, count)]
    lower = [f"{CTID_COLUMN} >= '({block},0)'::tid" for block in bounds]
    upper = [f"{CTID_COLUMN} < '({block},0)'::tid" for block in bounds]
    predicates = [" and ".join(pair) for pair in zip(["true", *lower], [*upper, "true"], strict=True)]
    frame = spark.read.jdbc(_read_url(target), f"({query}) q", predicates=predicates, properties=_read_settings(target))
    return frame.drop(CTID_COLUMN)


def _read_url(target: PostgresTarget) -> str:
    return f"{jdbc_url(target)}?readOnly=true"


def _read_settings(target: PostgresTarget) -> dict[str, str]:
    return {**jdbc_settings(target), "driver": _JDBC_DRIVER, "fetchsize": str(_FETCHED_ROWS)}


def prepare_merge(connection: Connection) -> None:
    """Set server parameters for the merge until the end of the transaction."""
    for name, value in _MERGE_SETTINGS.items():
        connection.execute("select set_config(%s, %s, true)", (name, value))
    for name in ("work_mem", "maintenance_work_mem"):
        statement = "select set_config(%s, greatest(pg_size_bytes(current_setting(%s)), %s) / 1024 || 'kB', true)"
        connection.execute(statement, (name, name, _MIN_WORK_MEM_BYTES))


def lock(connection: Connection, key: str, table: str) -> None:
    """Take the advisory lock of a table. Raises OverlapError, whose message names the session that holds the lock."""
    if not scalar(connection, "select pg_try_advisory_lock(hashtextextended(%s, 0))", (key,)):
        message = f"another run has locked table {table}{_describe_holder(connection, key)}"
        raise OverlapError(message, f"wait until that run ends; its application_name is {APPLICATION_NAME}")


def unlock(connection: Connection, key: str) -> None:
    """Release the lock. Closing the connection is not sufficient, because the server ends the session later."""
    connection.execute("select pg_advisory_unlock(hashtextextended(%s, 0))", (key,))


@contextmanager
def creation_lock(connection: Connection, name: str) -> Iterator[None]:
    """Open a transaction that prevents other runs from creating the object `name`.

    Without this lock, IF NOT EXISTS would fail if two runs created the object at the same time.
    """
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))
        yield


def _describe_holder(connection: Connection, key: str) -> str:
    """Return ": pid N, from ADDRESS, since TIME UTC" for the lock's session; empty if the lock was just released.

    The address and time are omitted if the user may not read other users' sessions.
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
