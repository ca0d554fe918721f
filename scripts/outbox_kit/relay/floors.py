"""Find a lower bound of the order column for each bucket, so that polls skip the index entries of sent rows.

While a snapshot is older than the deletion of sent rows, VACUUM cannot remove their index entries, and each poll would
read all of them again. Below a bound, a bucket has no unsent row, and no open transaction can insert one: a transaction
that has inserted a row holds ROW EXCLUSIVE on the table until it ends. Every RESET_S, the search starts at 0 again, for
rows that were inserted with an explicit number or whose mark was removed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from psycopg import sql

from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection
from outbox_kit.relay.buckets import BUCKETS
from outbox_kit.relay.tables import RelayTables, last_number

INTERVAL_S = 2.0
RESET_S = 60.0
# The virtual transaction id of a prepared transaction starts with -1.
WRITERS = sql.SQL("""
    select virtualtransaction as writer from pg_locks
    where locktype = 'relation' and mode = 'RowExclusiveLock' and pid is distinct from pg_backend_pid()
      and database = (select oid from pg_database where datname = current_database())
      and relation in (select %(table)s::regclass union select relid from pg_partition_tree(%(table)s::regclass))""")
# The query has one subquery for each bucket, so that an index scan reads only the bucket's first entry.
FIRST_PENDING = sql.SQL("""
    select bucket, first.place from unnest(%s::int[], %s::bigint[]) as held (bucket, floor)
    cross join lateral (select {order} as place from {outbox}
                        where {bucket} = held.bucket and {pending} and {order} >= held.floor
                        order by {order} limit 1) as first""")


class Floors:
    """Lower bounds of the buckets. The bounds remain valid if another process sends the rows of a bucket."""

    def __init__(self, connection: Connection, tables: RelayTables) -> None:
        self._connection, self._tables = connection, tables
        self._floors = [0] * BUCKETS
        self._last = 0
        self._writers: frozenset[str] = frozenset()
        self._due_at = self._reset_at = 0.0

    def of(self, buckets: Collection[int]) -> list[int]:
        return [self._floors[bucket] for bucket in buckets]

    def first_pending(self, buckets: Collection[int]) -> dict[int, int]:
        """Map each of the buckets that has unsent rows to the position of its first unsent row."""
        parameters = ([*buckets], self.of(buckets))
        found = self._connection.execute(FIRST_PENDING.format(**self._tables.names), parameters)
        return {row["bucket"]: row["place"] for row in found}

    def refresh(self, held: Sequence[int]) -> None:
        """Raise the bounds of the held buckets, unless this was done within the last INTERVAL_S."""
        now = time.monotonic()
        if now < self._due_at:
            return
        self._due_at = now + INTERVAL_S
        if (settled := self._settled()) is None:
            return
        if now >= self._reset_at:
            self._reset_at = now + RESET_S
            self._floors = [0] * BUCKETS
        first = self.first_pending(held)
        for bucket in held:
            self._floors[bucket] = min(first.get(bucket, settled + 1), settled + 1)

    def _settled(self) -> int | None:
        """Return a number up to which every inserting transaction has ended, or None if one is still open."""
        table = ddl.quoted_text(self._tables.outbox_name)
        if not self._writers:
            self._last = last_number(self._connection, self._tables)
        # The locks are read in a later statement than the number, so that no transaction with a lower number is missed.
        writers = {row["writer"] for row in self._connection.execute(WRITERS, {"table": table})}
        self._writers = frozenset(
            writer for writer in writers if not self._writers or writer in self._writers or writer.startswith("-1/")
        )
        return None if self._writers else self._last
