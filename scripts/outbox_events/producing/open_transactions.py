"""Open business transactions of a sender, which a recovery waits for.

A process that has been fenced can still be between the delivery of its records and its commits. If the recovery read
before it continues, its transaction would be left as it is until the next recovery. Each business transaction therefore
holds a shared advisory lock of its sender from before its first record. A transaction that begins after the fence
cannot deliver a record, so the recovery only needs to wait for the locks that are held then.
"""

from __future__ import annotations

import psycopg
from psycopg.rows import tuple_row

from outbox_events.producing.database import Connection
from outbox_events.waiting import Observation, wait_for

# PREPARE TRANSACTION keeps the lock, without a process.
HOLDERS = (
    "select pid from pg_locks where locktype = 'advisory' and objsubid = 1 and pid is not null and pid <> "
    "pg_backend_pid() and database = (select oid from pg_database where datname = current_database()) "
    "and (classid::bigint << 32 | objid::bigint) = hashtextextended(%s::text, 0) order by pid"
)
HINT = "end these sessions, for example with pg_terminate_backend, or the process that holds them"


def begin(connection: Connection, sender: str) -> str:
    """Begin a transaction that a recovery of the sender waits for, in one round trip; return its xid."""
    query = "select pg_current_xact_id()::text, pg_advisory_xact_lock_shared(hashtextextended(%s::text, 0))"
    # In pipeline mode, BEGIN and this statement are one round trip.
    with connection.pipeline(), psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(query, [sender])
        return str(cursor.fetchall()[0][0])


def wait_until_ended(connection: Connection, sender: str, *, seconds: float) -> None:
    """Wait until no transaction of the sender is open. Raises WaitTimeoutError, which names the processes, after that.

    A prepared transaction is not open. The connection may be in a transaction.
    """

    def poll() -> Observation[bool]:
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            processes = [str(pid) for (pid,) in cursor.execute(HOLDERS, [sender]).fetchall()]
        return Observation(not processes or None, f"sessions of the server: {', '.join(processes)}")

    wait_for(f"the end of the business transactions of {sender}", poll, seconds=seconds, hint=HINT)
