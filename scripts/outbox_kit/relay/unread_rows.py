"""Count rows that are deleted before the relay reads them, such as those of an outbox table that stays empty.

No query can see a row that is deleted in the transaction that inserted it, so the relay would never send it. Such a row
takes a number from the sequence of the order column, and the statistics count its deletion.
"""

from __future__ import annotations

from typing import NamedTuple

from psycopg import sql

from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection
from outbox_kit.relay.tables import RelayTables, last_number

# A batch is claimed with its ids, which are removed together with its rows. Both change `batches`.
# The functions with "xact" return the deletions of this session that the statistics do not contain yet.
READ = sql.SQL("""
    with tables as (select %(table)s::regclass as oid union select relid from pg_partition_tree(%(table)s::regclass)),
    numbers (number) as (
      select number * 1000000 + cardinality(ids) from {schema}.outbox_relay_batch where outbox = %(outbox)s
      union all select source_epoch from {schema}.outbox_relay where outbox = %(outbox)s)
    select (select sum(pg_stat_get_tuples_deleted(oid) + pg_stat_get_xact_tuples_deleted(oid))
            from tables)::bigint as deleted,
           (select coalesce(sum(number), 0) from numbers)::bigint as batches""")
PREVIOUS = sql.SQL("select seq, deleted, batches from {schema}.outbox_relay_progress where outbox = %s")
WRITE = sql.SQL("""
    insert into {schema}.outbox_relay_progress (outbox, seq, deleted, batches) values (%s, %s, %s, %s)
    on conflict (outbox) do update set seq = excluded.seq, deleted = excluded.deleted, batches = excluded.batches""")


class TableProgress(NamedTuple):
    """Last value of the order column, number of deleted rows, and a sum that changes with each batch."""

    seq: int
    deleted: int
    batches: int


def unread_rows(previous: TableProgress, current: TableProgress) -> int:
    """Return how many rows were inserted and deleted between two observations; 0 if a batch changed in between.

    Rows of a transaction that is open or was rolled back also take numbers, but do not count as deleted.
    """
    if current.batches != previous.batches:
        return 0
    return max(0, min(current.seq - previous.seq, current.deleted - previous.deleted))


def start(connection: Connection, tables: RelayTables, *, is_first_sender: bool) -> None:
    """Store the first observation. If the relay is the table's first sender, it begins with the table's first row."""
    if _previous(connection, tables) is None:
        current = _read(connection, tables)
        _write(connection, tables, current._replace(seq=0, deleted=0) if is_first_sender else current)


def count(connection: Connection, tables: RelayTables) -> int:
    """Return the number of unread rows since the last call by any relay process that has counted or sent rows."""
    current = _read(connection, tables)
    previous = _previous(connection, tables) or current
    unread = unread_rows(previous, current)
    # The statistics contain the deletions of other sessions only seconds later. The observation is kept until then.
    if unread or current.batches != previous.batches or current.deleted < previous.deleted:
        _write(connection, tables, current)
    return unread


def _read(connection: Connection, tables: RelayTables) -> TableProgress:
    names = {"table": ddl.quoted_text(tables.outbox_name), "outbox": tables.outbox_name}
    # The number is read first, so that it does not include rows whose batch is not counted.
    seq = last_number(connection, tables)
    return TableProgress(seq, **connection.execute(READ.format(schema=tables.schema), names).fetchall()[0])


def _previous(connection: Connection, tables: RelayTables) -> TableProgress | None:
    found = connection.execute(PREVIOUS.format(schema=tables.schema), (tables.outbox_name,)).fetchone()
    return None if found is None else TableProgress(**found)


def _write(connection: Connection, tables: RelayTables, progress: TableProgress) -> None:
    connection.execute(WRITE.format(schema=tables.schema), (tables.outbox_name, *progress))
