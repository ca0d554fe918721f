"""Lease buckets. A lease is a session-level advisory lock. The processes of a relay share the leases equally.

The server ends a session that sends no statement for LEASE_S, and thus releases the leases of a stopped process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from typing import LiteralString

from outbox_kit.postgres.client import Connection, relay_application
from outbox_kit.relay.buckets import BUCKETS

LEASE_S = 10
KEEP_S = 0.5
MEMBER_KEY = 1_000_000
"""Second key of the shared lock that every process holds, so that the processes can be counted."""
# A crash must not lose a claim whose records were sent, because its number would then be assigned again.
SETTINGS: LiteralString = """
    select set_config('application_name', %s, false), set_config('idle_session_timeout', %s, false),
           set_config('idle_in_transaction_session_timeout', %s, false),
           set_config('synchronous_commit',
                      case current_setting('synchronous_commit') when 'off' then 'local'
                      else current_setting('synchronous_commit') end, false)"""
JOIN: LiteralString = "select pg_advisory_lock_shared(hashtext(%s), %s)"
ACQUIRE: LiteralString = "select pg_try_advisory_lock(hashtext(%s), %s) as acquired"
RELEASE: LiteralString = "select pg_advisory_unlock(hashtext(%s), %s)"
MEMBERS: LiteralString = """
    select count(*) as members from pg_locks
    where locktype = 'advisory' and granted and objsubid = 2 and objid = %s
      and classid::bigint = (hashtext(%s)::bigint & 4294967295)
      and database = (select oid from pg_database where datname = current_database())"""


class Leases:
    """Buckets whose leases this process holds. `connection` is the session that holds the locks."""

    def __init__(self, connection: Connection, outbox: str) -> None:
        self._connection = connection
        self._key = f"outbox-kit relay {outbox}"
        self._kept_at = 0.0
        self.held: list[int] = []
        timeout = f"{LEASE_S}s"
        connection.execute(SETTINGS, (relay_application(outbox), timeout, timeout))
        connection.execute(JOIN, (self._key, MEMBER_KEY))

    def quota(self) -> int:
        """Return the maximum number of buckets that each process may lease."""
        members: int = self._connection.execute(MEMBERS, (MEMBER_KEY, self._key)).fetchall()[0]["members"]
        return math.ceil(BUCKETS / max(1, members))

    def rebalance(self, busy: Collection[int] = ()) -> tuple[Sequence[int], Sequence[int]]:
        """Release buckets above the quota, or acquire free ones. Return both. Buckets that are `busy` are kept."""
        quota = self.quota()
        released = [bucket for bucket in self.held[quota:] if bucket not in busy]
        for bucket in released:
            self._connection.execute(RELEASE, (self._key, bucket))
        self.held = [bucket for bucket in self.held if bucket not in released]
        acquired = []
        for bucket in range(BUCKETS):
            if len(self.held) >= quota:
                break
            if bucket not in self.held and bucket not in released and self._acquire(bucket):
                self.held.append(bucket)
                acquired.append(bucket)
        return acquired, released

    def _acquire(self, bucket: int) -> bool:
        return bool(self._connection.execute(ACQUIRE, (self._key, bucket)).fetchall()[0]["acquired"])

    def keep(self) -> None:
        """Execute a statement, unless this method executed one within the last KEEP_S.

        Without a statement, idle_session_timeout would end the session while a batch is encoded or waits for Kafka.
        """
        if time.monotonic() - self._kept_at >= KEEP_S:
            self._connection.execute("select 1")
            self._kept_at = time.monotonic()
