"""Claim batches of rows, read them again after a takeover, and complete them when they are sent.

A claim is committed before its rows are sent, because the batch number and the order of the rows determine their
source_sequence. A process that takes over a bucket first sends the claimed rows again. The rows have the same sequences
as before, so sending them again does not change any state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from outbox_events.errors import RejectedError
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.relay.buckets import BUCKETS
from outbox_kit.relay.rows import RowReader
from outbox_kit.relay.tables import MARK_COLUMN, ORDER_COLUMN

ALL_BUCKETS = [*range(BUCKETS)]
MAX_BYTES = 1_000_000
"""Maximum size of payloads and headers in a batch, unless the batch contains only one row."""
SELECT_PENDING = sql.SQL("""
    select * from (
      select *, sum(size) over (order by place) - size as size_before
      from (select {columns}, {size} as size, {order} as place from {outbox}
            where {bucket} = %s and {pending} order by {order} limit %s) as candidates) as sized
    where size_before = 0 or size_before + size <= %s order by place""")
SELECT_CLAIMED = sql.SQL("""
    select {columns}, claimed.position from {outbox}
    join unnest(%s::uuid[]) with ordinality as claimed (claimed_id, position) on {id} = claimed_id
    where {pending} order by position""")
CLAIM = sql.SQL("""
    insert into {schema}.outbox_relay_batch (outbox, bucket, number, ids)
    values (%s, %s, nextval({number_sequence}), %s::uuid[])
    on conflict (outbox, bucket) do update set number = excluded.number, ids = excluded.ids
    returning number, (select source_epoch from {schema}.outbox_relay where outbox = %s) as source_epoch""")
CLAIMED = sql.SQL("""
    select number, ids, (select source_epoch from {schema}.outbox_relay where outbox = %(outbox)s) as source_epoch
    from {schema}.outbox_relay_batch where outbox = %(outbox)s and bucket = %(bucket)s and ids <> '{{}}'""")
RELEASE = sql.SQL("""
    update {schema}.outbox_relay_batch set ids = '{{}}' where outbox = %s and bucket = %s and number = %s""")
DELETE = sql.SQL("delete from {outbox} where {id} = any(%s::uuid[])")
MARK = sql.SQL("update {outbox} set {mark} = now() where {id} = any(%s::uuid[])")
# The query has one subquery for each bucket, so that an index scan reads only one entry of the bucket.
PENDING_BUCKETS = sql.SQL("""
    select bucket from unnest(%s::int[]) as bucket
    where exists (select 1 from {outbox} where {bucket} = bucket and {pending})""")

FIRST_PENDING = sql.SQL("""
    select bucket, first.place from unnest(%s::int[]) as bucket
    cross join lateral (select {order} as place from {outbox}
                        where {bucket} = bucket and {pending} order by {order} limit 1) as first
    where first.place <= %s""")
LAST_PENDING = sql.SQL("""
    select max(last.place) as place from unnest(%s::int[]) as bucket
    cross join lateral (select {order} as place from {outbox}
                        where {bucket} = bucket and {pending} order by {order} desc limit 1) as last""")


@dataclass(frozen=True)
class Batch:
    """Claimed rows of one bucket, in order. `positions` contains the positions of these rows in the claim."""

    bucket: int
    number: int
    epoch: int
    ids: list[str]
    rows: list[Row]
    positions: list[int]

    def sequence(self, position: int) -> str:
        """Return a row's source_sequence, which consists of source epoch, batch number and position."""
        return f"{self.epoch:04x}_{self.number:016x}-{position:016x}"


class BatchStore:
    """Reads and writes the batches of one outbox table in the session that holds the leases."""

    def __init__(self, connection: Connection, reader: RowReader) -> None:
        self._connection, self._reader, self._tables = connection, reader, reader.tables
        sequence = sql.Literal(f"{self._tables.schema.as_string(connection)}.outbox_relay_batch_number")
        self._names: dict[str, sql.Composable] = {
            "columns": reader.columns,
            "size": reader.size,
            "outbox": self._tables.outbox,
            "schema": self._tables.schema,
            "bucket": self._tables.bucket,
            "pending": self._tables.pending,
            "id": self._tables.id,
            "order": sql.Identifier(ORDER_COLUMN),
            "mark": sql.Identifier(MARK_COLUMN),
            "number_sequence": sequence,
        }

    def pending_buckets(self, buckets: list[int]) -> list[int]:
        """Return the buckets that contain unsent rows."""
        return [row["bucket"] for row in self._execute(PENDING_BUCKETS, (buckets,))]

    def last_pending(self) -> int | None:
        """Return the position of the last unsent row, or None if all rows are sent."""
        place: int | None = self._execute(LAST_PENDING, (ALL_BUCKETS,))[0]["place"]
        return place

    def first_pending(self, last: int) -> dict[int, int]:
        """Map each bucket that has unsent rows up to position `last` to the position of its first unsent row."""
        return {row["bucket"]: row["place"] for row in self._execute(FIRST_PENDING, (ALL_BUCKETS, last))}

    def claim(self, bucket: int, limit: int) -> Batch | None:
        """Claim the next rows of a bucket, up to MAX_BYTES. Return None if the bucket has no unsent rows."""
        rows = self._execute(SELECT_PENDING, (bucket, limit, MAX_BYTES))
        if not rows:
            return None
        ids = [row["id"] for row in rows]
        claim = self._execute(CLAIM, (self._tables.outbox_name, bucket, ids, self._tables.outbox_name))[0]
        return Batch(bucket, claim["number"], claim["source_epoch"], ids, rows, list(range(len(rows))))

    def claimed(self, bucket: int) -> Batch | None:
        """Return the batch that the previous owner of a bucket claimed and did not complete, or None."""
        found = self._execute(CLAIMED, {"outbox": self._tables.outbox_name, "bucket": bucket})
        if not found:
            return None
        ids = [str(row_id) for row_id in found[0]["ids"]]
        rows = self._execute(SELECT_CLAIMED, (ids,))
        positions = [row["position"] - 1 for row in rows]
        return Batch(bucket, found[0]["number"], found[0]["source_epoch"], ids, rows, positions)

    def complete(self, batches: Sequence[Batch]) -> None:
        """Delete or mark the sent rows. Raises RejectedError if another process has claimed one of the buckets."""
        statement = (MARK if self._tables.marks else DELETE).format(**self._names)
        with self._connection.transaction():
            self._connection.execute(statement, ([row_id for batch in batches for row_id in batch.ids],))
            for batch in batches:
                parameters = (self._tables.outbox_name, batch.bucket, batch.number)
                if self._connection.execute(RELEASE.format(**self._names), parameters).rowcount != 1:
                    raise RejectedError(f"another process has claimed bucket {batch.bucket} of the relay")

    def _execute(self, statement: sql.SQL, parameters: Sequence[Any] | Mapping[str, Any]) -> list[Row]:
        return self._connection.execute(statement.format(**self._names), parameters).fetchall()
