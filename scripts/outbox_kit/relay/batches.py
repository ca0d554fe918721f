"""Claim batches of rows, read them again after a takeover, and complete them when they are sent.

A claim is committed before its rows are sent, because the batch number and the order of the rows determine their
source_sequence. A process that takes over a bucket first sends the claimed rows again. The rows have the same sequences
as before, so sending them again does not change any state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from psycopg import sql

from outbox_events.errors import RejectedError
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.relay.buckets import BUCKETS
from outbox_kit.relay.floors import Floors
from outbox_kit.relay.rows import RowReader

MAX_BYTES = 1_000_000
"""Maximum size of payloads and headers in a batch, unless the batch contains only one row."""
# The stored size, unlike the size of the text, is known without reading the values. Therefore the text of compressed
# values is measured, and the columns are computed, only for rows whose stored sizes fit into the batch.
SELECT_PENDING = sql.SQL("""
    select {columns}, {order} as _place, _bucket
    from unnest(%(buckets)s::int[], %(floors)s::bigint[]) as polled (_bucket, _floor)
    cross join lateral (
      select * from (
        select *, sum(_size) over (order by {order}) - _size as _before from (
          select *, {size} as _size from (
            select *, sum(_stored) over (order by {order}) - _stored as _stored_before from (
              select *, {stored_size} as _stored from {outbox}
              where {bucket} = polled._bucket and {pending} and {order} >= polled._floor
              order by {order} limit %(limit)s) as next
          ) as stored where _stored_before = 0 or _stored_before + _stored <= %(bytes)s) as fitting
      ) as sized where _before = 0 or _before + _size <= %(bytes)s) as chosen""")
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
    select bucket, number, ids,
           (select source_epoch from {schema}.outbox_relay where outbox = %(outbox)s) as source_epoch
    from {schema}.outbox_relay_batch where outbox = %(outbox)s and bucket = any(%(buckets)s) and ids <> '{{}}'""")
RELEASE = sql.SQL("""
    update {schema}.outbox_relay_batch set ids = '{{}}' where outbox = %s and bucket = %s and number = %s
    returning bucket""")
DELETE = sql.SQL("delete from {outbox} where {id} = any(%s::uuid[])")
MARK = sql.SQL("update {outbox} set {mark} = now() where {id} = any(%s::uuid[])")
# One subquery for each bucket, as in floors.py.
LAST_PENDING = sql.SQL("""
    select coalesce(max(last.place), 0) as place from generate_series(0, %s) as bucket
    cross join lateral (select {order} as place from {outbox}
                        where {bucket} = bucket and {pending} order by {order} desc limit 1) as last""")


@dataclass(frozen=True)
class Batch:
    """Claimed ids of one bucket, and the rows that still exist, in order, with the source_sequence of each row."""

    bucket: int
    number: int
    ids: list[str]
    rows: list[tuple[str, Row]]


class BatchStore:
    """Reads and writes the batches of one outbox table in the session that holds the leases."""

    def __init__(self, connection: Connection, reader: RowReader) -> None:
        self._connection, self._reader, self._tables = connection, reader, reader.tables
        self.floors = Floors(connection, reader.tables)
        sequence = sql.Literal(f"{self._tables.schema.as_string(connection)}.outbox_relay_batch_number")
        self._names = self._tables.names | {
            "columns": reader.columns,
            "size": reader.size,
            "stored_size": reader.stored_size,
            "number_sequence": sequence,
        }

    def last_pending(self) -> int:
        """Return the position of the last unsent row, or 0 if all rows are sent."""
        place: int = self._execute(LAST_PENDING, (BUCKETS - 1,))[0]["place"]
        return place

    def claim(self, buckets: Sequence[int], limit: int) -> list[Batch]:
        """Claim the next rows of each bucket, up to `limit` and MAX_BYTES. Buckets without unsent rows are omitted."""
        parameters = {"buckets": [*buckets], "floors": self.floors.of(buckets), "limit": limit, "bytes": MAX_BYTES}
        found = sorted(self._execute(SELECT_PENDING, parameters), key=itemgetter("_bucket", "_place"))
        chosen = {bucket: [*rows] for bucket, rows in groupby(found, itemgetter("_bucket"))}
        ids = {bucket: [row["id"] for row in rows] for bucket, rows in chosen.items()}
        outbox = self._tables.outbox_name
        claims = self._execute_each(CLAIM, [(outbox, bucket, ids[bucket], outbox) for bucket in chosen])
        return [
            Batch(bucket, claim["number"], ids[bucket], [(_sequence(claim, n), row) for n, row in enumerate(rows)])
            for claim, (bucket, rows) in zip(claims, chosen.items(), strict=True)
        ]

    def claimed(self, buckets: Sequence[int]) -> list[Batch]:
        """Return the batches of the buckets that were claimed, also by a former owner, and not completed."""
        found = self._execute(CLAIMED, {"outbox": self._tables.outbox_name, "buckets": [*buckets]}) if buckets else []
        return [self._claimed(claim) for claim in found]

    def _claimed(self, claim: Row) -> Batch:
        ids = [str(row_id) for row_id in claim["ids"]]
        rows = [(_sequence(claim, row["position"] - 1), row) for row in self._execute(SELECT_CLAIMED, (ids,))]
        return Batch(claim["bucket"], claim["number"], ids, rows)

    def complete(self, batches: Sequence[Batch]) -> None:
        """Delete or mark the sent rows. Raises RejectedError if another process has claimed one of the buckets."""
        statement = (MARK if self._tables.marks else DELETE).format(**self._names)
        with self._connection.transaction():
            self._connection.execute(statement, ([row_id for batch in batches for row_id in batch.ids],))
            parameters = [(self._tables.outbox_name, batch.bucket, batch.number) for batch in batches]
            released = {row["bucket"] for row in self._execute_each(RELEASE, parameters)}
            for batch in batches:
                if batch.bucket not in released:
                    raise RejectedError(f"another process has claimed bucket {batch.bucket} of the relay")

    def _execute(self, statement: sql.SQL, parameters: Sequence[Any] | Mapping[str, Any]) -> list[Row]:
        return self._connection.execute(statement.format(**self._names), parameters).fetchall()

    def _execute_each(self, statement: sql.SQL, parameters: Sequence[Sequence[Any]]) -> list[Row]:
        """Execute the statement once for each of `parameters` in one round trip, and return the rows of all results."""
        rows = []
        with self._connection.cursor() as cursor:
            cursor.executemany(statement.format(**self._names), parameters, returning=True)
            while parameters:
                rows += cursor.fetchall()
                if not cursor.nextset():
                    break
        return rows


def _sequence(claim: Row, position: int) -> str:
    """Return a row's source_sequence, which consists of source epoch, batch number and position."""
    return f"{claim['source_epoch']:04x}_{claim['number']:016x}-{position:016x}"
