"""Hold a session-level advisory lock in the source database, so that only one command at a time changes a pipeline.

These commands hold the lock: `apply`, `adopt`, `destroy`, `restart`, `pause`, `resume`, `stop`, `prune`,
`dead-letter replay` and `offsets reset`. `backfill` holds the lock only while it writes the lock file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import LiteralString

import psycopg

from outbox_events.errors import RefusedError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.pipeline import SourceDatabase
from outbox_kit.postgres import client

LOCK_CLASS = 0x6F757462
"""First key of every advisory lock of outbox-kit ("outb"). The second key is the hash of the pipeline's name."""

ACQUIRE: LiteralString = "select pg_try_advisory_lock(%s, hashtext(%s)) as acquired"
RELEASE: LiteralString = "select pg_advisory_unlock(%s, hashtext(%s))"
BACKEND: LiteralString = "select pg_backend_pid() as pid"
# The server releases the lock when the session ends, so an idle session must not time out (PostgreSQL 14 and later).
SETTINGS: LiteralString = """
    select set_config('application_name', %s, false), set_config('idle_session_timeout', '0', false)"""
HOLDER: LiteralString = """
    select a.pid, a.application_name as application, coalesce(host(a.client_addr), 'local socket') as address,
           to_char(a.backend_start at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') as since
    from pg_locks l join pg_stat_activity a using (pid)
    where l.locktype = 'advisory' and l.granted and l.objsubid = 2 and l.classid = %s
      and l.database = (select oid from pg_database where datname = current_database())
      -- objid is unsigned, but the result of hashtext is signed
      and l.objid::bigint = (hashtext(%s)::bigint & 4294967295)"""


@contextmanager
def pipeline_lock(database: SourceDatabase, pipeline: str, *, command: str, seconds: float = 0) -> Iterator[None]:
    """Hold the pipeline's lock while the context runs. If another session holds the lock, wait up to `seconds`.

    The session's application_name contains `command`, so that another command can report which command holds the lock.

    Raises UnreachableError and WaitTimeoutError. Raises RefusedError if the lock is not free and `seconds` is 0, and
    if a connection pooler prevents the session from holding the lock.
    """
    with client.connected(database) as connection:
        _refuse_shared_backend(database, connection)
        connection.execute(SETTINGS, (f"outbox-kit {command} {pipeline}"[:63],))

        def poll() -> Observation[bool]:
            acquired = connection.execute(ACQUIRE, (LOCK_CLASS, pipeline)).fetchall()[0]["acquired"]
            return Observation(True if acquired else None, "" if acquired else _holder(connection, pipeline))

        if seconds:
            wait_for(
                f"the other command that changes pipeline {pipeline!r} to end", poll, seconds=seconds, interval=0.5
            )
        elif (observation := poll()).value is None:
            raise RefusedError(
                f"another command that changes pipeline {pipeline!r} is running: {observation.text}",
                "run this command again when the other command has ended; `select pg_terminate_backend(PID)` ends it",
            )
        try:
            yield
        finally:
            # Without this, the lock would block the next command until the server notices the disconnection.
            with suppress(psycopg.Error):
                connection.execute(RELEASE, (LOCK_CLASS, pipeline))


def _refuse_shared_backend(database: SourceDatabase, connection: client.Connection) -> None:
    """Raise RefusedError if a pooler in transaction or statement mode lets other sessions use the session's backend.

    A pooler answers the login itself, so that the pid in the answer is not the backend's.
    """
    backend = _backend(connection)
    if backend == connection.info.backend_pid:
        return
    with client.connected(database) as other_connection:
        is_shared = _backend(other_connection) == backend or _backend(connection) != backend
    if is_shared:
        raise RefusedError(
            f"{database.host}:{database.port} is a connection pooler in transaction or statement mode, in which a "
            "session cannot hold the lock that prevents concurrent changes",
            "set source.host and source.port in the environment file to PostgreSQL, or to a pool in session mode",
        )


def _backend(connection: client.Connection) -> int:
    return int(connection.execute(BACKEND).fetchall()[0]["pid"])


def _holder(connection: client.Connection, pipeline: str) -> str:
    row = connection.execute(HOLDER, (LOCK_CLASS, pipeline)).fetchone()
    if row is None:
        return "its session has just ended"
    return f"pid {row['pid']}, {row['application']!r} from {row['address']}, since {row['since']} UTC"
